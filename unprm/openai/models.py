"""JSON, and the log-probabilities of a completion's tokens, in the forms in which servers of OpenAI's API send them."""

import builtins
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Json = dict[str, Any]
JsonList = Annotated[list[Json], Field(fail_fast=True)]
"""Read up to the first element that is no object, as every list that a caller sends: an error for each would take more
memory than what was sent."""


MIN_LOGPROB = -1e5
"""Far below any natural-log probability that a model reports; what servers write for none lies below it."""


class _Object(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Alternative(_Object):
    """A likely token at a position, with its natural-log probability; its text, if the server reports it."""

    token: str = ""
    logprob: float


class SampledToken(Alternative):
    """A token of a text, with its natural-log probability; `bytes`: those of its text, if the server reports them."""

    bytes: Annotated[list[int], Field(fail_fast=True)] | None = None

    @property
    def bounded(self) -> float:
        """Its log-probability in [`MIN_LOGPROB`, 0]; rounding may have left it just above 0."""
        return _bounded(self.logprob)

    @property
    def raw(self) -> builtins.bytes:
        """Its text in UTF-8; of a character that is split among tokens a part, where the server reports bytes."""
        return self.token.encode() if self.bytes is None else builtins.bytes(value & 255 for value in self.bytes)


class Token(SampledToken):
    """A sampled token, and the likeliest ones in its place. `id` is llama.cpp's."""

    id: int | None = None
    top_logprobs: Annotated[list[Alternative], BeforeValidator(lambda sent: sent or [])] = []

    @property
    def is_blank(self) -> bool:
        """Whether it is white space alone, also as vocabularies write it."""
        return not self.token.strip(" \n\t▁Ġ")

    @property
    def likeliest(self) -> list[float]:
        """Log-probabilities (≤ 0) of the likeliest tokens; rounding may have left some just above 0."""
        return [min(0.0, each.logprob) for each in self.top_logprobs]


class LogProbs(_Object):
    """Of a completion's tokens: a token after the other, as in chats and from llama.cpp, or lists, as vLLM has them."""

    content: list[Token] | None = None
    token_logprobs: list[float] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    @property
    def sampled(self) -> tuple[float, ...] | None:
        """The log-probability (≤ 0) of each token, None if the server sends none."""
        found = self.token_logprobs if self.content is None else [token.logprob for token in self.content]
        return None if found is None else tuple(map(_bounded, found))

    @property
    def likeliest(self) -> list[list[float]]:
        """The log-probabilities (≤ 0) of the likeliest tokens at each place, in any order."""
        if self.content is not None:
            return [token.likeliest for token in self.content]
        return [[min(0.0, each) for each in (place or {}).values()] for place in self.top_logprobs or ()]


def _bounded(logprob: float) -> float:
    return min(0.0, max(MIN_LOGPROB, logprob))
