"""How often labels are right, where the truth is known: for problems of the embedded model's domain."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from training.schema import AnnotatedSolution
from unprm.mini import checker
from unprm.mini.domain import parse

FirstErrorOf = Callable[[str, Sequence[str]], int | None]
"""The true index of the first wrong step of a problem's solution, None if all are right; `ValueError` if it can't be
known."""


def by_checker(problem: str, steps: Sequence[str]) -> int | None:
    """The first error by the exact checker of the embedded model's domain."""
    return checker.first_error(parse(problem), steps)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Labels of wrong solutions against the true first errors, as shares: `first`, the step found is the first
    wrong one; `at_or_after`, that or a later one; `steps`, right ones among the step labels; `resolved`, labelled at
    all."""

    COLUMNS: ClassVar = ("first error found", "at or after it", "step labels right", "labelled")

    first: float
    at_or_after: float
    steps: float
    resolved: float

    def shares(self) -> tuple[float, ...]:
        return self.first, self.at_or_after, self.steps, self.resolved


def agreement(solutions: Iterable[AnnotatedSolution], true_error: FirstErrorOf = by_checker) -> Agreement | None:
    """Agreement of the labels of wrong solutions with the truth; None if there are no wrong solutions, or the truth
    can't be known."""
    wrong = [solution for solution in solutions if not solution.correct]
    try:
        pairs = [(solution.first_error, true_error(solution.problem, solution.steps)) for solution in wrong]
    except ValueError:
        return None
    if not wrong:
        return None
    return Agreement(
        first=_share(labelled is not None and labelled == true for labelled, true in pairs),
        at_or_after=_share(labelled is not None and true is not None and labelled >= true for labelled, true in pairs),
        steps=_share(same for solution in wrong for same in agreeing_labels(solution, true_error)),
        resolved=_share(solution.labels is not None for solution in wrong),
    )


def agreeing_labels(solution: AnnotatedSolution, true_error: FirstErrorOf = by_checker) -> list[bool]:
    """For each label of a solution, whether it is the true one; empty if the solution has no labels."""
    if solution.labels is None:
        return []
    wrong = true_error(solution.problem, solution.steps)
    return [label == (wrong is None or index < wrong) for index, label in enumerate(solution.labels)]


def _share(outcomes: Iterable[bool]) -> float:
    counted = list(outcomes)
    return sum(counted) / len(counted) if counted else 0.0
