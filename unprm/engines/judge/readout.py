"""What a way of reading scores from a judge provides, and what it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from unprm.engines.judge.chat import JudgeChat
from unprm.engines.judge.layouts import Messages
from unprm.types import Usage

BYTES_PER_TOKEN = 4
"""Bytes that count as a token; the judge's own tokens are known to its server alone."""
CALL = 512
"""Fewest tokens that a call counts as: however short its prompt, it takes a place among those in flight."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A solution's step scores in [0, 1], None where no verdict was found, and what they cost."""

    scores: list[float | None]
    usage: Usage


class JudgeReadout(Protocol):
    """A way to read the scores of a solution's steps. `rounds`: how many calls of a usual solution come one after the
    other."""

    rounds: ClassVar[int]

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversations that are sent, each with all of its messages; replies still to be written are marked."""
        ...

    def asked(self, problem: str, steps: Sequence[str]) -> int:
        """Tokens of the prompts that it takes to read a solution, as `asked` counts them."""
        ...

    def described(self, likeliest: int) -> str:
        """How scores are read, in words; `likeliest`: of how many tokens the server gives log-probabilities."""
        ...

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The scores of a solution. Raises `ModelUnreachable`."""
        ...


def asked(messages: Messages) -> int:
    """Tokens of the prompts of a conversation in which each message of the user's is a call; a prompt is all that was
    said until then. A call counts as at least `CALL` tokens."""
    tokens = said = 0
    for message in messages:
        said += len(message["content"].encode())
        if message["role"] == "user":
            tokens += max(CALL, said // BYTES_PER_TOKEN)
    return tokens


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what was found; None if nothing was."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None
