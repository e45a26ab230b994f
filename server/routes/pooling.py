"""The addresses by which vLLM serves reward models: `/classify` with a reward for each prompt, `/pooling` with a row
for each step, and `/tokenize`.

A prompt arrives rendered, as text or token ids, and is scored at each of its step tags. Messages are a conversation:
the last one is the solution, those before it are the problem. A row has two classes, of which the second is correct.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

from fastapi import APIRouter
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from unprm import steps as step_text
from unprm.calibration import log_odds
from unprm.election.ballot import why_unscorable
from unprm.errors import InvalidRequest, TooManySolutions, Unscorable
from unprm.trajectories import Message, conversation, text_of
from unprm.types import Prompt, Solution
from unprm.wire import MAX_SOLUTIONS, ModelName, Text

from .. import scoring, voting
from ..context import Context, TheContext
from ..service import Service, TheService
from .listing import ListResponse
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)

_Ids = Annotated[tuple[Annotated[int, Field(ge=0, strict=True)], ...], Field(min_length=1, fail_fast=True)]
_Content = Annotated[
    Annotated[Text, Tag("text")] | Annotated[_Ids, Tag("ids")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "ids"),
]


def _listed(value: object) -> object:
    alone = isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], int))
    return [value] if alone else value


def _last_part(value: object) -> object:
    """A trainer names the model by the path it reads the tokenizer from; it is served by the path's last part."""
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value


class _Body(BaseModel):
    """Fields that can't be honoured are refused by name; those that are null ask for nothing. `user` and `request_id`
    are for the caller's own use."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[ModelName | None, BeforeValidator(_last_part)] = None
    add_special_tokens: bool = True
    user: str | None = None
    request_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class ClassifyRequest(_Body):
    """Prompts, or a conversation. `use_activation`: whether probabilities are returned, or logits."""

    input: Annotated[
        list[_Content] | None, Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True), BeforeValidator(_listed)
    ] = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=2000, fail_fast=True)
    use_activation: bool = Field(True, validation_alias=AliasChoices("use_activation", "activation"))
    priority: Literal[0] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.input is None) == (self.messages is None):
            raise ValueError("exactly one of input and messages must be given")
        return self

    def row(self, score: float) -> list[float]:
        """The classes of a score: incorrect, correct."""
        return [1 - score, score] if self.use_activation else [0.0, log_odds(score)]


class PoolingRequest(ClassifyRequest):
    """As `ClassifyRequest`; `task`: whether there is a row for each step, or one for each prompt."""

    task: Literal["token_classify", "classify"] = "token_classify"
    encoding_format: Literal["float"] = "float"


class TokenizeRequest(_Body):
    """A prompt."""

    prompt: Text


class TokenizeResponse(BaseModel):
    """The token ids of a prompt, of which the model reads at most `max_model_len`."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: None = None


class _Scores(NamedTuple):
    model: str
    steps: Sequence[tuple[float, ...]]


async def classify(service: TheService, request: ClassifyRequest, context: TheContext) -> ListResponse:
    """A reward for each prompt: the lowest of its step scores."""
    scores = await _scores(service, request, context)
    data = [
        {
            "index": index,
            "label": "correct" if min(steps) >= 0.5 else "incorrect",
            "probs": request.row(min(steps)),
            "num_classes": 2,
        }
        for index, steps in enumerate(scores.steps)
    ]
    return ListResponse.of("classify", scores.model, data, context)


async def pooling(service: TheService, request: PoolingRequest, context: TheContext) -> ListResponse:
    """A row for each step of each prompt, or one for each prompt."""
    scores = await _scores(service, request, context)
    whole = request.task == "classify"
    data = [
        {
            "index": index,
            "object": "pooling",
            "data": request.row(min(steps)) if whole else list(map(request.row, steps)),
        }
        for index, steps in enumerate(scores.steps)
    ]
    return ListResponse.of("pool", scores.model, data, context)


async def tokenize(service: TheService, request: TokenizeRequest, context: TheContext) -> TokenizeResponse:
    """The token ids of a prompt. Raises `InvalidRequest` for one that can't fit the model's window."""
    prompt, size = Prompt(request.prompt, request.add_special_tokens), len(request.prompt)
    with service.models.chosen(request.model) as (model,), model.encoding([size], context.claims.share):
        format, limit = model.engine.format, model.engine.description.max_tokens
        if (least := -(-size // format.longest_token)) > limit:
            raise InvalidRequest(f"the prompt takes at least {least} tokens, the limit is {limit}", "/prompt")
        ids = await model.encoders.run(context.claims, size, partial(format.tokenize, prompt))
        return TokenizeResponse(count=len(ids), max_model_len=limit, tokens=list(ids))


for _endpoint in (classify, pooling, tokenize):
    router.add_api_route(f"/{_endpoint.__name__}", _endpoint, methods=["POST"], include_in_schema=False)


async def _scores(service: Service, request: ClassifyRequest, context: Context) -> _Scores:
    """Raises `Unscorable` if a prompt or solution can't be scored."""
    problem = ""
    if request.messages is None:
        prompts = [Prompt(each, request.add_special_tokens) for each in request.input or ()]
        solutions = [Solution((), prompt=prompt) for prompt in prompts]
    else:
        *before, last = request.messages
        if last.tool_calls:
            raise InvalidRequest("the last message's tool calls can't be scored", f"/messages/{len(before)}/tool_calls")
        problem, text = conversation(before), text_of(len(before), last)
        solutions = [Solution(tuple(step_text.split(text, "auto")))]
    context.solutions = len(solutions)
    if len(solutions) > service.settings.max_solutions:
        raise TooManySolutions(len(solutions), service.settings.max_solutions)
    with service.models.chosen(request.model) as models, _pointing(request):
        if request.messages is not None and (error := why_unscorable(0, solutions[0], service.settings.max_steps)):
            raise error
        found = await scoring.score(models, problem, dict(enumerate(solutions)), True, context)
        return _Scores(voting.name(models), [found.steps[index] for index in range(len(solutions))])


@contextmanager
def _pointing(request: ClassifyRequest) -> Iterator[None]:
    """Errors about a solution point to where it was sent."""
    try:
        yield
    except Unscorable as error:
        error.pointer = "/messages" if request.messages else error.pointer.replace("/solutions", "/input", 1)
        raise
