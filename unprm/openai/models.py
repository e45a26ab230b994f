"""The objects of OpenAI's API that are read here: completions, with log-probabilities of their tokens, and usage.

What only some servers send is optional; what is not read is ignored, or, in the classes named `Raw`, kept as it came.
"""

import builtins
import json
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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


class Choice(_Object):
    """One completion of a prompt."""

    index: int
    finish_reason: str | None = None
    logprobs: Annotated[LogProbs, BeforeValidator(lambda sent: sent or {})] = LogProbs()


class TextChoice(Choice):
    """One of `/completions`."""

    text: str
    token_ids: list[int] | None = None

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The token ids, None if the server does not send them."""
        if self.token_ids is not None or self.logprobs.content is None:
            return None if self.token_ids is None else tuple(self.token_ids)
        sent = [token.id for token in self.logprobs.content]
        return None if None in sent else tuple(id for id in sent if id is not None)


class ChatMessage(_Object):
    """What the assistant says."""

    content: str | None = None


class ChatChoice(Choice):
    """One of `/chat/completions`."""

    message: ChatMessage

    @property
    def text(self) -> str:
        """Its text; empty if it has none."""
        return self.message.content or ""

    @property
    def tokens(self) -> list[Token]:
        """Its tokens; empty where the server gives no log-probabilities."""
        return self.logprobs.content or []


def _number(*kinds: type, otherwise: int | None = None) -> BeforeValidator:
    """A number of one of these kinds, else `otherwise`."""
    return BeforeValidator(lambda sent: sent if type(sent) in kinds and 0 <= sent <= 2**53 else otherwise)


_Count = Annotated[int, _number(int, otherwise=0)]


class _Reported(_Object):
    """What counts as not reported if it can't be read, since vendors extend the usage each in their own way, and a
    completion is worth more than the count of its tokens."""

    @model_validator(mode="before")
    @classmethod
    def _readable(cls, sent: object) -> object:
        return sent if isinstance(sent, dict | cls) else {}


class _Details(_Reported):
    cached_tokens: Annotated[int | None, _number(int)] = None
    reasoning_tokens: Annotated[int | None, _number(int)] = None


class UsageInfo(_Reported):
    """The tokens of a completion by the server's count, 0 where it says nothing; what it cost, as OpenRouter tells."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Details = _Details()
    completion_tokens_details: _Details = _Details()
    cost: Annotated[float | None, _number(int, float)] = None

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed again."""
        return min(self.prompt_tokens, self.prompt_tokens_details.cached_tokens or 0)

    @property
    def details(self) -> dict[str, float]:
        """What the server tells beyond the tokens, by name: nothing is 0 that it doesn't."""
        cached = self.prompt_tokens_details.cached_tokens
        reported = {
            "cached_tokens": None if cached is None else self.cached_tokens,
            "reasoning_tokens": self.completion_tokens_details.reasoning_tokens,
            "cost": self.cost,
        }
        return {name: value for name, value in reported.items() if value is not None}


AnyChoice = TypeVar("AnyChoice", bound=Choice)


class CompletionResponse(_Object, Generic[AnyChoice]):
    """All completions of a prompt that were asked for together."""

    choices: list[AnyChoice]
    usage: UsageInfo | None = None

    def __len__(self) -> int:
        return len(self.choices)


class _Raw(BaseModel):
    """All fields are kept. All but log-probabilities must be such that JSON can hold them."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_json(self.model_dump(exclude={"logprobs"})):
            raise ValueError("a number that JSON can't hold")
        return self


class RawChoice(_Raw):
    """A completion of a chat; `logprobs` as they were sent, since most are never read."""

    message: Json
    finish_reason: str | None = None
    logprobs: Any = None


class RawChatResponse(BaseModel):
    """All completions of a chat that were asked for together, each a `RawChoice` if it is as it should be."""

    model: Annotated[str, BeforeValidator(lambda sent: "" if sent is None else sent)] = ""
    id: Annotated[str, BeforeValidator(lambda sent: "" if sent is None else str(sent))] = ""
    choices: list[Any] = Field(min_length=1)
    usage: UsageInfo | None = None


class RawModelList(_Raw):
    """The models that a server has."""

    data: list[Json]


def _bounded(logprob: float) -> float:
    return min(0.0, max(MIN_LOGPROB, logprob))


def is_json(value: Any) -> bool:
    """Whether JSON can hold a value: no number in it is infinite, NaN, or longer than Python writes."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
