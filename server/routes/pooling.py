"""The endpoints at which vLLM serves reward models: `/classify` with a reward for each prompt, `/pooling` with a row
for each step, and `/tokenize`; `/predict` of TEI, and SGLang's form of `/score`.

A prompt arrives rendered, as text or token ids, and is scored at each of its step tags. Messages are a conversation:
the last one is the solution, those before it are the problem, without a system message that the model's own template
begins with. A row has two classes, of which the second is correct. A solution that has the text of the step tag in it
is split there, any other as elsewhere.
"""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import AliasChoices, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from unprm import steps as step_text
from unprm.ballot import why_unscorable
from unprm.calibration import log_odds
from unprm.errors import InvalidRequest, TooManySolutions
from unprm.pipeline import refuse
from unprm.trajectories import Message, conversation, text_of
from unprm.types import Format, Prompt, Solution, StepScores
from unprm.wire import MAX_SOLUTIONS, ModelName, Request, Text, check_one

from ..admission import Context, TheContext
from ..scoring import RequestScorer
from ..service import Service, TheService
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)

Json = dict[str, Any]

_LABELS = ("incorrect", "correct")

_TEXT_OR_NOT = Discriminator(lambda value: "text" if isinstance(value, str) else "other")
_Ids = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32, strict=True)], ...], Field(min_length=1, fail_fast=True)]
_Content = Annotated[
    Annotated[Text, Tag("text")] | Annotated[_Ids, Tag("other")],
    _TEXT_OR_NOT,
]


def _as_list(value: object) -> object:
    alone = isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], int))
    return [value] if alone else value


def _last_part(value: object) -> object:
    """A trainer names the model by the path it reads the tokenizer from; it is served by the path's last part."""
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value


class _Body(Request):
    """Fields that can't be honoured are refused by name. `user` and `request_id` are for the caller's own use."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[ModelName | None, BeforeValidator(_last_part)] = None
    add_special_tokens: bool = True
    user: str | None = None
    request_id: str | None = None


class ClassifyRequest(_Body):
    """Prompts, or a conversation. `use_activation`: whether probabilities are returned, or logits."""

    input: Annotated[
        list[_Content] | None, Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True), BeforeValidator(_as_list)
    ] = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=2000, fail_fast=True)
    use_activation: bool = Field(True, validation_alias=AliasChoices("use_activation", "activation", "softmax"))
    add_generation_prompt: Literal[False] = False
    continue_final_message: Literal[False] = False
    priority: Literal[0] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "input", "messages")
        return self

    def row(self, score: float) -> list[float]:
        return [1 - score, score] if self.use_activation else [0.0, log_odds(score)]


class PoolingRequest(ClassifyRequest):
    """As `ClassifyRequest`; `task`: whether there is a row for each step, or one for each prompt."""

    task: Literal["token_classify", "classify"] = "token_classify"
    encoding_format: Literal["float"] = "float"


class TokenizeRequest(_Body):
    """A prompt."""

    prompt: Text


class PredictRequest(Request):
    """TEI's: a prompt, or prompts; `raw_scores`: whether logits are returned, not probabilities."""

    inputs: Annotated[
        Annotated[Text, Tag("text")]
        | Annotated[list[tuple[Text]], Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True), Tag("other")],
        _TEXT_OR_NOT,
    ]
    raw_scores: bool = False


class LabelsRequest(_Body):
    """SGLang's: each item after (`item_first`: before) the query is a prompt, which is read at its last step tag, or
    at each `score_extraction_token`. `label_token_ids`: the model's two verdicts, in the order of a row."""

    query: _Content
    items: Annotated[
        list[_Content], Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True), BeforeValidator(_as_list)
    ]
    label_token_ids: _Ids | None = None
    apply_softmax: bool = False
    item_first: bool = False
    score_extraction_token: str | None = None

    def read(self, format: Format) -> tuple[ClassifyRequest, int]:
        """The prompts, and whether a row is in its order, 1, or -1. Raises `InvalidRequest` for what the model has no
        number for."""
        query: Any = self.query
        if {type(query)} != set(map(type, self.items)):
            raise InvalidRequest("expected text as the query and all items, or token ids as all of these", "/items")
        token, labels = self.score_extraction_token, self.label_token_ids
        readout: Any = getattr(format, "readout", None)
        if token is not None and format.steps(f"1{token}", 2) != ["1"]:
            raise InvalidRequest("expected the model's step tag, got another string", "/score_extraction_token")
        # of `unprm.formats.family.Verdicts`, whose import takes long
        verdicts = [readout.negative, readout.positive] if hasattr(readout, "positive") else []
        if labels and not (self.apply_softmax and sorted(labels) == sorted(verdicts)):
            scored = f"only {verdicts} against each other, with apply_softmax" if verdicts else "no tokens"
            why = f"models of family {format.family} score {scored}; without labels, a row is incorrect, correct"
            raise InvalidRequest(why, "/label_token_ids")
        prompts = [item + query if self.item_first else query + item for item in self.items]
        more = self.model_dump(include={"model", "add_special_tokens"})
        classification = ClassifyRequest(input=prompts, use_activation=self.apply_softmax, **more)
        return classification, 1 if not labels or [*labels] == verdicts else -1


@router.post("/classify", include_in_schema=False)
async def classify(service: TheService, request: ClassifyRequest, context: TheContext) -> Json:
    """A reward for each prompt: the lowest of its step scores."""
    model, scores = await _scores(service, request, context)
    data = [
        {"label": _LABELS[min(steps) >= 0.5], "probs": request.row(min(steps)), "num_classes": 2} for steps in scores
    ]
    return listed("classify", model, data, context)


@router.post("/pooling", include_in_schema=False)
async def pooling(service: TheService, request: PoolingRequest, context: TheContext) -> Json:
    """A row for each step of each prompt, or one for each prompt."""
    model, scores = await _scores(service, request, context)
    data = await service.read(context, partial(_rows, request, scores))
    return listed("pool", model, data, context)


def _rows(request: PoolingRequest, scores: Sequence[tuple[float, ...]]) -> list[Json]:
    whole = request.task == "classify"
    return [
        {"object": "pooling", "data": request.row(min(steps)) if whole else list(map(request.row, steps))}
        for steps in scores
    ]


@router.post("/tokenize", include_in_schema=False)
async def tokenize(service: TheService, request: TokenizeRequest, context: TheContext) -> Json:
    """The token ids of a prompt. Raises `InvalidRequest` for one that can't fit the model's window."""
    prompt, size = Prompt(request.prompt, request.add_special_tokens), len(request.prompt)
    with service.models.chosen(request.model) as (model,), model.encoding([size], context.claims.share):
        format, limit = model.engine.format, model.engine.description.max_tokens
        if (least := -(-size // format.longest_token)) > limit:
            raise InvalidRequest(f"the prompt takes at least {least} tokens, the limit is {limit}", "/prompt")
        ids = await model.encoders.run(context.claims, size, partial(format.tokenize, prompt))
        return {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": None}


async def score_labels(service: Service, request: LabelsRequest, context: Context) -> Json:
    """SGLang's rows: one for each item, or for each step of each item."""
    with service.models.chosen(request.model) as (chosen,):
        classification, order = await service.read(context, partial(request.read, chosen.engine.format))
    model, scores = await _scores(service, classification, context, "/items/{}")
    rows = [[classification.row(score)[::order] for score in steps] for steps in scores]
    of_items = [each[-1] for each in rows] if request.score_extraction_token is None else rows
    return {"object": "scoring", "model": model, "scores": of_items, "usage": usage_of(context)}


@router.post("/predict", include_in_schema=False)
async def predict(service: TheService, request: PredictRequest, context: TheContext) -> list[Any]:
    """The classes of each prompt, the likelier first."""
    prompts = [request.inputs] if isinstance(request.inputs, str) else [each for (each,) in request.inputs]
    classification = ClassifyRequest.model_validate({"input": prompts, "use_activation": not request.raw_scores})
    rows = []
    for steps in (await _scores(service, classification, context, "/inputs/{}"))[1]:
        row = [
            {"label": label, "score": score}
            for label, score in zip(_LABELS, classification.row(min(steps)), strict=True)
        ]
        rows.append(row[:: -1 if min(steps) >= 0.5 else 1])
    return rows[0] if isinstance(request.inputs, str) else rows


async def _scores(
    service: Service, request: ClassifyRequest, context: Context, place: str = "/input/{}"
) -> tuple[str, list[tuple[float, ...]]]:
    """The model's name, and the step scores of each prompt; `place` is where one was sent. Raises `Unscorable` if one
    can't be scored."""
    place = place if request.messages is None else "/messages"
    with service.models.chosen(request.model) as models:
        reading = partial(_to_score, request, models[0].engine.format, service.settings.max_steps)
        solutions = await service.read(context, reading)
        context.solutions = len(solutions)
        if len(solutions) > service.settings.max_solutions:
            raise TooManySolutions(len(solutions), service.settings.max_solutions)
        if request.messages is not None:
            refuse([why_unscorable(0, solutions[0], service.settings.max_steps)], place)
        scorer = RequestScorer(service, models, context)
        outcomes = (await scorer.score(dict(enumerate(solutions)), strict=True)).values()
        refuse(outcomes, place)
        return scorer.name, [each.values for each in outcomes if isinstance(each, StepScores)]


def _to_score(request: ClassifyRequest, format: Format, max_steps: int) -> list[Solution]:
    """What is to be scored: prompts, or the last message."""
    if request.messages is None:
        prompts = [Prompt(each, request.add_special_tokens) for each in request.input or ()]
        return [Solution((), prompt=prompt) for prompt in prompts]
    *before, last = request.messages
    if last.tool_calls:
        raise InvalidRequest("the last message's tool calls can't be scored", f"/messages/{len(before)}/tool_calls")
    if before and before[0].role == "system" and text_of(0, before[0]) == format.system.strip():
        before[0] = Message(role="system")
    text = text_of(len(before), last)
    steps = format.steps(text, max_steps)
    if steps is None:
        steps = step_text.split(text, "auto", max_steps)
    return [Solution(tuple(steps), problem=conversation(before))]


def listed(kind: str, model: str, data: list[Json], context: Context) -> Json:
    """An entry for each text, in the order of the request; `kind`: what its id begins with."""
    return {
        "id": new_id(kind),
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [{"index": index} | entry for index, entry in enumerate(data)],
        "usage": usage_of(context),
    }


def new_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"


def usage_of(context: Context) -> dict[str, int]:
    return {"prompt_tokens": context.usage.tokens, "total_tokens": context.usage.tokens}
