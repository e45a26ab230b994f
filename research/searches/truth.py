"""Where the truth about first errors is known: for problems of the embedded model's domain."""

from collections.abc import Callable, Sequence

from unprm.mini import checker
from unprm.mini.domain import parse

FirstErrorOf = Callable[[str, Sequence[str]], int | None]
"""The true index of the first wrong step of a problem's solution, None if all are right; `ValueError` if it can't be
known."""


def by_checker(problem: str, steps: Sequence[str]) -> int | None:
    """The first error by the exact checker of the embedded model's domain."""
    return checker.first_error(parse(problem), steps)
