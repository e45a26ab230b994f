"""What each search costs and finds on solutions whose first errors people labelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training import sources

from . import findings
from .truth import FirstErrorOf


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


def markdown(study: Path, labels: Path) -> str:
    """The tables of a study by `research study`, with its truth from labels of people."""
    return findings.markdown(study, by_people(labels))
