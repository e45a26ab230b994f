"""The parts of the upstream's answers that the gateway reads."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unprm.openai_api import Json, is_json
from unprm.wire import LEAST_LOGPROB

_Count = Annotated[int, Field(ge=0, le=2**53)]


class _Kept(BaseModel):
    """Fields beside those that are read are kept. All but log-probabilities must be such that JSON can hold them."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_json(self.model_dump(exclude={"logprobs"})):
            raise ValueError("a number that JSON can't represent")
        return self


class Usage(BaseModel):
    """The tokens of an answer, as far as it tells them."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class Choice(_Kept):
    """A completion; `logprobs` as they were sent, since most are never read."""

    message: Json
    finish_reason: str | None = None
    logprobs: Any = None


class Token(BaseModel):
    """A sampled token's natural-log probability."""

    logprob: Annotated[float, Field(ge=LEAST_LOGPROB, allow_inf_nan=False)]


class LogProbs(BaseModel):
    """The tokens of a completion, or of a part of it."""

    content: list[Token] | None = None


class Completion(BaseModel):
    """A chat completion: all that were asked for together."""

    model_config = ConfigDict(extra="ignore")

    model: str = ""
    choices: list[Choice] = Field(min_length=1)
    usage: Usage | None = None


class ModelList(_Kept):
    """The models that the upstream has."""

    data: list[Json]
