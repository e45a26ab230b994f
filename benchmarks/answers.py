"""Comparing answers of real solutions with the gold one, against Math-Verify, as its callers do."""

from collections.abc import Callable, Sequence
from pathlib import Path

from math_verify import parse, verify

from benchmarks.timing import Comparison, timed
from training.evaluate import pool
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

POOLS = Path(__file__).parents[1] / "docs" / "lab" / "pools"


def comparisons() -> list[Comparison]:
    """On each pool of real solutions the times, and the number of equal verdicts."""
    rows = []
    for place in sorted(POOLS.glob("*.jsonl.gz")):
        questions = real_answers(place)
        ours, seconds = _verdicts(Equivalence().classes, questions)
        theirs, plain = _verdicts(with_math_verify, questions)
        agree = sum(one == other for one, other in zip(ours, theirs, strict=True))
        what = f"{place.name}: {len(ours)} answers against the gold one, {agree} verdicts alike"
        rows.append(Comparison(what, seconds, "Math-Verify", plain))
    return rows


def real_answers(place: Path) -> list[list[str]]:
    """For each question of a pool the gold answer, then the different answers of its candidates."""
    questions = pool.read_pool(place, "")
    return [
        list(dict.fromkeys([q.gold_answer, *filter(None, (extract(text, "auto") for text in q.texts))]))
        for q in questions
    ]


def with_math_verify(answers: list[str]) -> list[int]:
    """Classes by comparing each answer with the first of each class, as callers of Math-Verify do."""
    firsts: list[object] = []
    classes = []
    for answer in answers:
        parsed = parse(f"${answer.strip('$ ')}$")
        number = next((k for k, first in enumerate(firsts) if verify(first, parsed)), None)
        if number is None:
            number = len(firsts)
            firsts.append(parsed)
        classes.append(number)
    return classes


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
