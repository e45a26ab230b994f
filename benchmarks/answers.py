"""Grouping answers for a vote, against Math-Verify, which compares each answer with one member of each class so far."""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from math_verify import parse, verify

from benchmarks.timing import Comparison, compare, timed
from training.evaluate import pool
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.election import decide as votes

POOLS = Path(__file__).parents[1] / "docs" / "lab" / "pools"

_SPELLINGS = (
    "{p}/{q}",
    "\\frac{{{p}}}{{{q}}}",
    "\\dfrac{{{p}}}{{{q}}}",
    "$\\frac{{{p}}}{{{q}}}$",
    "x = \\frac{{{p}}}{{{q}}}",
    "\\left(\\frac{{{p}}}{{{q}}}\\right)",
    " \\tfrac {{{p}}} {{{q}}} ",
    "\\frac{{{twice_p}}}{{{twice_q}}}",
)


def numbers(rng: random.Random) -> list[str]:
    """128 spellings of 20 numbers: fractions in 8 spellings, roots in 3."""
    fractions = [(rng.randint(1, 99), rng.choice([3, 7, 11, 13])) for _ in range(14)]
    spelled = [template.format(p=p, q=q, twice_p=2 * p, twice_q=2 * q) for p, q in fractions for template in _SPELLINGS]
    spelled += [
        template.format(n=n, square=n * n * 2, twice=2 * n)
        for n in range(2, 8)
        for template in ("{n}\\sqrt{{2}}", "\\sqrt{{{square}}}", "\\frac{{{twice}}}{{\\sqrt 2}}")
    ]
    return rng.sample(spelled, 128)


EXPRESSIONS = 40
"""Few, as the baseline compares each with all others, which takes seconds."""


def expressions(rng: random.Random) -> list[str]:
    """Different expressions in x, which are compared by the worker processes."""
    made = itertools.product(range(2, 10), range(2, 10), ("\\sin", "\\ln"))
    return rng.sample([f"\\frac{{{a}x^{b}+1}}{{{f}(x)+{a}}}" for a, b, f in made], EXPRESSIONS)


def with_math_verify(answers: list[str]) -> list[int]:
    """Classes by comparing each answer with the first of each class, as callers of Math-Verify do."""
    firsts: list[object] = []
    classes = []
    for answer in answers:
        parsed = parse(f"${answer.strip('$ ')}$")
        found = next((k for k, first in enumerate(firsts) if verify(first, parsed)), None)
        if found is None:
            found = len(firsts)
            firsts.append(parsed)
        classes.append(found)
    return classes


def real_answers(place: Path) -> list[list[str]]:
    """For each question of a pool the gold answer, then the different answers of its candidates."""
    questions = pool.load(place, "")
    return [
        list(dict.fromkeys([q.gold_answer, *filter(None, (extract(text, "auto") for text in q.texts))]))
        for q in questions
    ]


def on_real_answers() -> list[Comparison]:
    """Comparing answers with the gold one, on pools of real solutions: the times, and the number of equal verdicts."""
    rows = []
    for place in sorted(POOLS.glob("*.jsonl.gz")):
        questions = real_answers(place)
        equivalence = Equivalence()
        ours, seconds = _verdicts(equivalence.classes, questions)
        theirs, plain = _verdicts(with_math_verify, questions)
        agree = sum(one == other for one, other in zip(ours, theirs, strict=True))
        what = f"{place.name}: {len(ours)} answers against the gold one, {agree} verdicts alike"
        rows.append(Comparison(what, seconds, "Math-Verify", plain, 1))
    return rows


def _verdicts(
    classes: Callable[[list[str]], Sequence[int | None]], questions: list[list[str]]
) -> tuple[list[bool], float]:
    """Whether each answer is in the class of its question's first answer, and the seconds this took."""
    verdicts: list[bool] = []

    def judge() -> None:
        for answers in questions:
            gold, *others = classes(answers)
            verdicts.extend(number == gold for number in others)

    seconds = timed(judge)
    return verdicts, seconds


def comparisons() -> list[Comparison]:
    """A vote over numbers, grouping of expressions (first time, and from the cache), and real answers."""
    rng = random.Random(0)
    spelled, written = numbers(rng), expressions(rng)
    rewards = [rng.random() for _ in spelled]
    baseline = "Math-Verify with each class"

    def first_time(answers: list[str]) -> list[int]:
        fresh = Equivalence()
        return fresh.classes(answers)

    kept = Equivalence()
    kept.classes(written)
    return [
        compare(
            "vote (WRF) on 128 spellings of 20 numbers",
            lambda: votes.decide("wrf", first_time(spelled), rewards),
            baseline,
            lambda: votes.decide("wrf", with_math_verify(spelled), rewards),
        ),
        compare(
            f"{EXPRESSIONS} expressions, first time, workers started",
            lambda: first_time(written),
            baseline,
            lambda: with_math_verify(written),
            rounds=3,
        ),
        compare(
            f"{EXPRESSIONS} expressions, from the cache",
            lambda: kept.classes(written),
            "the same, first time",
            lambda: first_time(written),
            rounds=3,
        ),
        *on_real_answers(),
    ]
