"""JSON, and the log-probabilities of a completion's tokens, in the forms in which servers of OpenAI's API send them."""

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


class Token(Alternative):
    """A sampled token, with its natural-log probability, and the likeliest ones in its place. `bytes`: those of its
    text, if the server reports them; `id` is llama.cpp's."""

    bytes: Annotated[list[int], Field(fail_fast=True)] | None = None
    id: int | None = None
    top_logprobs: Annotated[list[Alternative], BeforeValidator(lambda sent: sent or [])] = []

    @property
    def is_blank(self) -> bool:
        """Whether it is white space alone, also as vocabularies write it."""
        return not self.token.strip(" \n\t▁Ġ")


class LogProbs(_Object):
    """Of a completion's tokens: a token after the other, as in chats and from llama.cpp, or lists, as vLLM has them."""

    content: list[Token] | None = None
    token_logprobs: list[float] | None = None

    @property
    def sampled(self) -> tuple[float, ...] | None:
        """The log-probability of each token in [`MIN_LOGPROB`, 0], above which rounding may have left some; None if the
        server sends none."""
        found = self.token_logprobs if self.content is None else [token.logprob for token in self.content]
        return None if found is None else tuple(min(0.0, max(MIN_LOGPROB, each)) for each in found)
