"""What annotation cost and what it found."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import ClassVar

from .. import resumable, sources
from ..evaluate.metrics import in_markdown, percent
from ..schema import AnnotatedSolution, QuestionValue, ResolvedSolution, Trial
from .annotate import questions_path, unresolved_path


@dataclass(frozen=True, slots=True)
class AnnotationCosts:
    """Costs of a file of annotated solutions. `verified`: steps verified by rollouts. `samples`, `tokens`: rollouts
    drawn and their tokens, counted once per shared prefix. `tau_samples`: those for the questions alone."""

    solutions: int
    wrong: int
    unresolved: int
    verified: int
    samples: int
    tokens: int
    tau_samples: int


@dataclass(frozen=True, slots=True)
class FoundRanks:
    """Ranks of the steps found, in order of falling Δu: 0 is the step tried first (paper, section 6).

    `mean`: over the solutions that have a rank; `without`: share of the searched solutions without a rank, as no tried
    step was below τ; `with_last`: mean over all solutions where a step was tried, with the last rank tried in place of
    a missing one, as in the authors' program. None if there is no such solution.
    """

    COLUMNS: ClassVar = ("rank of the step found", "share without one", "mean rank with the last tried")

    mean: float | None
    without: float | None
    with_last: float | None

    def cells(self) -> tuple[str, ...]:
        return _shown(self.mean), "–" if self.without is None else percent(self.without), _shown(self.with_last)


def read_annotated(annotated: Path) -> list[AnnotatedSolution]:
    resolved = sources.read(annotated, ResolvedSolution)
    return [*resolved, *sources.read(unresolved_path(annotated), AnnotatedSolution)]


def costs(annotated: Path) -> AnnotationCosts:
    solutions = read_annotated(annotated)
    questions = list(sources.read(questions_path(annotated), QuestionValue))
    shared = resumable.config_of(annotated)["share_prefixes"]
    drawn: dict[object, Trial] = {}
    for solution in solutions:
        for trial in solution.tried:
            prefix = trial.prefix if shared else (solution.id, trial.prefix)
            drawn[prefix] = max(drawn.get(prefix, trial), trial, key=lambda trial: trial.samples)
    return AnnotationCosts(
        solutions=len(solutions),
        wrong=sum(not solution.correct for solution in solutions),
        unresolved=sum(solution.labels is None for solution in solutions),
        verified=sum(solution.verified for solution in solutions),
        samples=sum(trial.samples for trial in drawn.values()),
        tokens=sum(trial.tokens for trial in drawn.values()),
        tau_samples=sum(question.samples for question in questions),
    )


def ranks(solutions: Iterable[AnnotatedSolution]) -> FoundRanks | None:
    """Ranks of the steps found in a run's solutions, labelled and unresolved. None if no solution was searched in
    order of falling Δu."""
    searched = [(solution.rank, len(solution.tried)) for solution in solutions if solution.rank != "unranked"]
    if not searched:
        return None
    ranked = [rank for rank, _ in searched if rank is not None]
    last = [tried - 1 for rank, tried in searched if rank is None and tried]
    return FoundRanks(_mean(ranked), 1 - len(ranked) / len(searched), _mean(ranked + last))


def table(annotated: Sequence[Path]) -> str:
    rows = []
    for path in annotated:
        found_ranks = ranks(read_annotated(path))
        numbers = [f"{number:,}" for number in astuple(costs(path))]
        rows.append([path.stem, *numbers, *(found_ranks.cells() if found_ranks else "–––")])
    columns = ["run", "solutions", "wrong", "unresolved", "verified steps", "samples", "tokens", "for τ"]
    return in_markdown([*columns, *FoundRanks.COLUMNS], rows, names=1)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
