"""Where the truth about first errors is known: for problems of the embedded model's domain, and where people labelled
them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from research.mini import checker
from training import sources
from unprm.mini.domain import parse

FirstErrorOf = Callable[[str, Sequence[str]], int | None]
"""The true index of the first wrong step of a problem's solution, None if all are right; `ValueError` if it can't be
known."""


def by_checker(problem: str, steps: Sequence[str]) -> int | None:
    """The first error by the exact checker of the embedded model's domain."""
    return checker.first_error(parse(problem), steps)


@dataclass(frozen=True, slots=True)
class LabelledError:
    """A wrong solution. `first_error`: the index of its first wrong step, from 0. `logprobs`: of its tokens, natural
    logarithms (≤ 0); `ends`: for each step, the number of tokens up to its end."""

    problem: str
    steps: tuple[str, ...]
    first_error: int
    logprobs: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()


def by_people(labels: Path) -> FirstErrorOf:
    """First errors as people labelled them. Raises `RecordInvalid`; what it returns raises `ValueError` for a solution
    that nobody labelled."""
    known = {(row.problem, row.steps): row.first_error for row in sources.read(labels, LabelledError)}

    def first_error(problem: str, steps: Sequence[str]) -> int:
        try:
            return known[problem, tuple(steps)]
        except KeyError:
            raise ValueError("nobody labelled this solution") from None

    return first_error
