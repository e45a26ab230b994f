"""Training data for a small PRM from public step labels: each wrong solution beside a right one of the same question.

Errors alone teach that late steps are wrong, whatever they say. So a question with a wrong solution brings its gold
solution, and that one again up to a step with a slip, so that the style of the gold solutions is no sign either.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from training.sources import read

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_RESULT = re.compile(r"=\s*\$?(\d[\d,]*(?:\.\d+)?)")
_CALCULATION = re.compile(r"<<[^>]*>>")
STEPS, CHARACTERS, BRANCHES = 12, 1000, 4
"""Of a problem's solutions the shortest, with at most so many steps and characters, and so many wrong branches."""


@dataclass(frozen=True, slots=True)
class MixedSolution:
    """A solution with a label for each step; None where nobody judged it."""

    problem: str
    steps: Sequence[str]
    labels: Sequence[bool | None]

    @property
    def characters(self) -> int:
        return sum(map(len, self.steps))

    def until_error(self) -> "MixedSolution":
        """The solution up to its first wrong step."""
        end = self.labels.index(False) + 1 if False in self.labels else len(self.labels)
        return MixedSolution(self.problem, self.steps[:end], self.labels[:end])

    def last_alone(self) -> "MixedSolution":
        return MixedSolution(self.problem, self.steps, [*[None] * (len(self.labels) - 1), self.labels[-1]])


@dataclass(frozen=True, slots=True)
class GoldSolution:
    """A row of GSM8K."""

    question: str
    solution: str
    answer: str

    @property
    def steps(self) -> list[str]:
        """Its lines without annotations for a calculator; the last one states the answer."""
        text = _CALCULATION.sub("", self.solution).split("####")[0]
        *lines, last = (line.strip() for line in text.split("\n") if line.strip())
        return [*lines, f"{last} The answer is {self.answer}."]


def slip(problem: str, steps: Sequence[str], rng: random.Random) -> list[str] | None:
    """The steps up to one with another result (wherever that number stands in it), or with a number of the problem for
    one of its operands; None if this solution gives no way to do that."""
    places = [(place, match) for place, step in enumerate(steps) if (match := _RESULT.search(step))]
    if not places:
        return None
    place, result = rng.choice(places)
    step = steps[place]
    wrong = _other_result(step, result[1], rng) if rng.random() < 0.5 else _other_operand(problem, step, result, rng)
    return None if wrong is None or wrong == step else [*steps[:place], wrong]


def _other_result(step: str, old: str, rng: random.Random) -> str:
    value = float(old.replace(",", ""))
    new = value + rng.choice([-10, -5, -2, -1, 1, 2, 5, 10, value, -value / 2])
    if new <= 0 or new == value:
        new = value + 3
    return re.sub(rf"(?<![\d.,]){re.escape(old)}(?!\d|[.,]\d)", f"{new:g}", step)


def _other_operand(problem: str, step: str, result: re.Match[str], rng: random.Random) -> str | None:
    others = [number[0] for number in _NUMBER.finditer(problem) if number[0] not in step]
    operands = [number for number in _NUMBER.finditer(step) if number.start() < result.start(1)]
    if not others or not operands:
        return None
    operand = rng.choice(operands)
    return step[: operand.start()] + str(rng.choice(others)) + step[operand.end() :]


def written(
    errors: Path,
    gold: Path,
    model_written: Path,
    competition: Path,
    solutions: Path,
    branches: Path,
    characters: tuple[int, int, int],
) -> Iterator[str]:
    """The mix of these files of JSON lines, as JSON lines that `training train` reads. `gold`: rows of GSM8K; the
    others have `problem`, `steps` and `labels`. Raises `RecordInvalid`."""
    steps = {_key(row.question): row.steps for row in read(gold, GoldSolution)}
    rows = mix(*(list(read(path, MixedSolution)) for path in (errors, model_written, competition, solutions, branches)),
               gold=steps, characters=characters)  # fmt: skip
    return (json.dumps(asdict(each), ensure_ascii=False) for each in rows)


def mix(
    errors: Sequence[MixedSolution],
    model_written: Sequence[MixedSolution],
    competition: Sequence[MixedSolution],
    solutions: Sequence[MixedSolution],
    branches: Sequence[MixedSolution],
    *,
    gold: Mapping[str, Sequence[str]],
    characters: tuple[int, int, int],
    seed: int = 1,
) -> Iterator[MixedSolution]:
    """All `errors` up to the first, with a gold solution and a slip for each question; then up to about so many
    `characters` of `model_written` (shortest first), of `competition` (drawn), and of `solutions` (by problem, drawn)
    with some of their wrong `branches`."""
    rng = random.Random(seed)
    seen: set[str] = set()
    for each in _shuffled(errors, rng):
        yield each.until_error()
        steps = gold.get(_key(each.problem))
        if steps is None or each.problem in seen:
            continue
        seen.add(each.problem)
        yield MixedSolution(each.problem, steps, [True] * len(steps))
        if wrong := slip(each.problem, steps, rng):
            yield MixedSolution(each.problem, wrong, [True] * (len(wrong) - 1) + [False]).last_alone()
    yield from _up_to(characters[0], sorted(model_written, key=lambda each: each.characters))
    short = [each for each in competition if each.characters < 900]
    yield from _up_to(characters[1], _shuffled(short, rng))
    yield from _with_branches(solutions, branches, characters[2], rng)


def _up_to(characters: int, rows: Iterable[MixedSolution]) -> Iterator[MixedSolution]:
    used = 0
    for each in rows:
        if used > characters:
            return
        used += each.until_error().characters
        yield each.until_error()


def _with_branches(
    solutions: Sequence[MixedSolution], branches: Sequence[MixedSolution], characters: int, rng: random.Random
) -> Iterator[MixedSolution]:
    right, wrong = defaultdict(list), defaultdict(list)
    for each in solutions:
        right[each.problem].append(each)
    for each in branches:
        wrong[each.problem].append(each)
    shortest = [min(rows, key=lambda row: len(row.steps)) for _, rows in sorted(right.items())]
    fitting = (each for each in _shuffled(shortest, rng) if len(each.steps) <= STEPS and each.characters <= CHARACTERS)
    for each in _up_to(characters, fitting):
        yield each
        known = wrong[each.problem]
        yield from (branch.last_alone() for branch in rng.sample(known, min(BRANCHES, len(known))))


def _shuffled(rows: Sequence[MixedSolution], rng: random.Random) -> list[MixedSolution]:
    shuffled = list(rows)
    rng.shuffle(shuffled)
    return shuffled


def _key(question: str) -> str:
    return " ".join(question.split())
