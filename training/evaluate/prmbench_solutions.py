"""PRMBench's modified solutions, read as its authors' program reads them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from unprm.errors import RecordInvalid

from .. import sources
from ..schema import NonEmpty

PrmBenchCategory = Literal[
    "redundency",
    "circular",
    "counterfactual",
    "step_contradiction",
    "domain_inconsistency",
    "confidence",
    "missing_condition",
    "deception",
    "multi_solutions",
]
"""PRMBench's kinds of errors, as its files spell them."""
CATEGORIES: tuple[PrmBenchCategory, ...] = get_args(PrmBenchCategory)
_NUMBER = re.compile(r"^(?:Step\s*)?\d+\.\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PrmBenchSolution:
    """A modified solution in PRMBench's layout. `error_steps`: numbers of the wrong steps, from 1; some rows have
    numbers beyond the last step (`misnumbered`), which label none."""

    idx: NonEmpty
    category: Annotated[PrmBenchCategory, Field(alias="classification")]
    problem: Annotated[NonEmpty, Field(alias="modified_question")]
    process: Annotated[tuple[str, ...], Field(alias="modified_process")]
    error_steps: tuple[Annotated[int, Field(ge=1, strict=True)], ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("modified_process: every step is blank, or there is none")

    @property
    def question(self) -> str:
        """The question that the solution is for; solutions of several categories have the same."""
        return self.idx.removeprefix(f"{self.category}_")

    @property
    def id(self) -> str:
        """Unique in the benchmark, but for solutions that its authors' program leaves out."""
        return f"{self.category}_{self.question}"

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that are not blank, without their numbers (`3. `, `Step 3. `)."""
        return tuple(_NUMBER.sub("", step.strip()) for step in self.process if step.strip())

    @property
    def labels(self) -> tuple[bool, ...]:
        """Whether each of `steps` is right."""
        return tuple(k not in self.error_steps for k, step in enumerate(self.process, 1) if step.strip())

    @property
    def misnumbered(self) -> bool:
        """Whether a number in `error_steps` is beyond the last step."""
        return any(number > len(self.process) for number in self.error_steps)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Solutions by category, only of categories that have any; how many of those are misnumbered, and how many were
    left out because an earlier one has their id."""

    solutions: Mapping[str, Sequence[PrmBenchSolution]]
    misnumbered: int
    repeated: int


def load(source: str) -> Benchmark:
    """The benchmark in a JSONL file, plain or `.gz`, in each such file of a directory, or in the hub's data set of that
    name. Raises `RecordInvalid` for an invalid record, or if there is none."""
    rows = list(_rows(source))
    solutions: dict[str, PrmBenchSolution] = {}
    for solution in rows:
        solutions.setdefault(solution.id, solution)
    if not solutions:
        raise RecordInvalid(source, 0, "there is no solution in it")
    by_category = {name: [each for each in solutions.values() if each.category == name] for name in CATEGORIES}
    misnumbered = sum(solution.misnumbered for solution in solutions.values())
    return Benchmark(
        {name: found for name, found in by_category.items() if found}, misnumbered, len(rows) - len(solutions)
    )


def _rows(source: str) -> Iterator[PrmBenchSolution]:
    if not Path(source).exists():
        yield from (solution for _, solution in sources.from_hub(source, "train", PrmBenchSolution))
        return
    for path in sources.json_lines(Path(source)):
        yield from sources.read(path, PrmBenchSolution)
