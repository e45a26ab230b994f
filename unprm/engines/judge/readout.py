"""What a way of reading scores from a judge provides, and what it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unprm.engines.judge.chat import JudgeChat
from unprm.engines.judge.layouts import Messages
from unprm.types import Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """A solution's step scores in [0, 1], None where no verdict was found, and what they cost."""

    scores: list[float | None]
    usage: Usage


class JudgeReadout(Protocol):
    """A way to read the scores of a solution's steps."""

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversations that are sent, each with all of its messages; replies still to be written are marked."""
        ...

    def described(self, likeliest: int) -> str:
        """How scores are read, in words; `likeliest`: of how many tokens the server gives log-probabilities."""
        ...

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The scores of a solution. Raises `ModelUnreachable`."""
        ...


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what was found; None if nothing was."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None
