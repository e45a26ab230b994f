"""The parts of the upstream's answers that the gateway reads."""

from pydantic import BaseModel, ConfigDict, Field

from unprm.openai_api import Json


class Choice(BaseModel):
    """A completion; other fields are kept."""

    model_config = ConfigDict(extra="allow")

    message: Json
    finish_reason: str | None = None


class Alternative(BaseModel):
    """One of the likeliest tokens at a place, with its natural-log probability."""

    model_config = ConfigDict(extra="allow")

    logprob: float


class Token(Alternative):
    """The token that was sampled, and the likeliest ones at its place."""

    top_logprobs: list[Alternative] = []

    @property
    def likeliest(self) -> list[float]:
        """Log-probabilities of the likeliest tokens; rounding may have left some just above 0."""
        return [min(0.0, each.logprob) for each in self.top_logprobs]


class LogProbs(BaseModel):
    """The tokens of a completion, or of a part of it."""

    content: list[Token] | None = None


class Completion(BaseModel):
    """A chat completion: all that were asked for together."""

    model_config = ConfigDict(extra="ignore")

    model: str = ""
    choices: list[Choice] = Field(min_length=1)
    usage: Json | None = None


class ModelList(BaseModel):
    """The models that the upstream has."""

    data: list[Json]


class Part(BaseModel):
    """What a chunk adds to a completion."""

    delta: Json = {}
    logprobs: LogProbs | None = None
    finish_reason: str | None = None


class Chunk(BaseModel):
    """A part of a streamed chat completion."""

    model: str = ""
    choices: list[Part]
    usage: Json | None = None
