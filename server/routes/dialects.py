"""The endpoints of other servers, as their clients call them: vLLM's `/classify`, `/pooling`, `/score` and `/tokenize`,
and `/rerank` of Cohere, Jina and vLLM.

A `ScoringForm` says how a body becomes solutions, and their step scores a response. A prompt arrives rendered, as
text or token ids, and is scored at each of its step tags. Of messages the last one is the solution, the earlier ones
are the problem. To a reranking client, a query is the problem, documents are its solutions, relevance is the reward. A
reward is the lowest step score.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from fastapi import APIRouter
from pydantic import AliasChoices, BeforeValidator, ConfigDict, Discriminator, Field, StrictBool, Tag, model_validator

from unprm import steps as step_text
from unprm.calibration import log_odds
from unprm.errors import InvalidRequest, TooManySolutions
from unprm.mini.domain import domain_notice
from unprm.pipeline import Score, Work, raise_first_unscorable, why_unscorable
from unprm.trajectories import Message, conversation, text_of
from unprm.types import Format, Prompt, Solution
from unprm.wire import MAX_SOLUTIONS, FreeText, ModelName, Request, Text, check_one

from ..lease import Lease, TheLease
from ..scoring import RequestScorer
from ..service import TheService
from ..settings import Settings
from .openapi import describe
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)

Json = dict[str, Any]
Scores = Sequence[Sequence[float]]
"""The step scores of each solution, in [0, 1]."""


def _nullable(schema: Json) -> None:
    """Says of a form's schema that null counts as left out."""
    fields = schema["properties"]
    for name in fields.keys() - set(schema.get("required", ())):
        if {"type": "null"} not in fields[name].get("anyOf", ()):
            fields[name] = {"anyOf": [fields[name], {"type": "null"}]}


class Form(Request):
    """The body of a request."""

    model_config = ConfigDict(json_schema_extra=_nullable)

    model: ModelName | None = None


class ScoringForm(Form, ABC):
    """The body of a request for scores, to an endpoint: `PATHS`, of which the first names the ids of responses;
    `PURPOSE`."""

    PATHS: ClassVar[Sequence[str]]
    PURPOSE: ClassVar[str]

    @abstractmethod
    def to_solutions(self, format: Format, max_steps: int) -> tuple[list[Solution], str]:
        """The solutions, split into at most so many steps (and a rest), and the JSON pointer of a solution, {} being
        its index. Raises `InvalidRequest`."""

    @abstractmethod
    def response(self, scores: Scores) -> Json:
        """The response, without what all responses have."""


_Ids = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32, strict=True)], ...], Field(min_length=1, fail_fast=True)]
_Prompt = Annotated[
    Annotated[Text, Tag("text")] | Annotated[_Ids, Tag("other")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "other"),
]


def _as_list(value: object) -> object:
    alone = isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], int))
    return [value] if alone else value


def _last_part(value: object) -> object:
    """A trainer names the model by the path of its tokenizer; a model is served by the last part of its path."""
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value


class PromptForm(Form):
    """Fields that can't be honoured are refused by name. `user` and `request_id` are for the caller's own use."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[ModelName | None, BeforeValidator(_last_part)] = None
    add_special_tokens: StrictBool = True
    user: str | None = None
    request_id: str | None = None


class ClassifyRequest(PromptForm, ScoringForm):
    """Prompts, or a conversation. `use_activation`: whether probabilities are returned, or logits."""

    PATHS = ("/classify",)
    PURPOSE = "The reward of each prompt, as vLLM has it."

    input: Annotated[
        list[_Prompt] | None, Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True), BeforeValidator(_as_list)
    ] = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=2000, fail_fast=True)
    use_activation: StrictBool = Field(True, validation_alias=AliasChoices("use_activation", "activation", "softmax"))
    add_generation_prompt: Literal[False] = False
    continue_final_message: Literal[False] = False
    priority: Literal[0] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "input", "messages")
        return self

    def row(self, score: float) -> list[float]:
        """A score as the classes `incorrect` and `correct`."""
        return [1 - score, score] if self.use_activation else [0.0, log_odds(score)]

    def to_solutions(self, format: Format, max_steps: int) -> tuple[list[Solution], str]:
        """Raises `InvalidRequest` for tool calls in the last message."""
        if self.messages is None:
            prompts = (Prompt(content, self.add_special_tokens) for content in self.input or ())
            return [Solution((), prompt=prompt) for prompt in prompts], "/input/{}"
        *before, last = self.messages
        if last.tool_calls:
            raise InvalidRequest("the last message's tool calls can't be scored", f"/messages/{len(before)}/tool_calls")
        if before and before[0].role == "system" and text_of(0, before[0]) == format.system.strip():
            before[0] = Message(role="system")  # which the model's own template begins with
        return [_solution(conversation(before), text_of(len(before), last), format, max_steps)], "/messages"

    def response(self, scores: Scores) -> Json:
        labels = ("incorrect", "correct")
        return _list(
            {"label": labels[reward >= 0.5], "probs": self.row(reward), "num_classes": 2} for reward in map(min, scores)
        )


class PoolingRequest(ClassifyRequest):
    """As `ClassifyRequest`; `task`: whether there is a row for each step, or one for each prompt."""

    PATHS = ("/pooling",)
    PURPOSE = "The score of each step, as vLLM has them."

    task: Literal["token_classify", "classify"] = "token_classify"
    encoding_format: Literal["float"] = "float"

    def response(self, scores: Scores) -> Json:
        whole = self.task == "classify"
        rows = (self.row(min(steps)) if whole else list(map(self.row, steps)) for steps in scores)
        return _list({"object": "pooling", "data": row} for row in rows)


class TokenizeRequest(PromptForm):
    """A prompt."""

    prompt: Text


_Document = Annotated[
    FreeText, BeforeValidator(lambda sent: sent.get("text", sent) if isinstance(sent, dict) else sent)
]
_Documents = Annotated[list[_Document], Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True)]


class RerankRequest(ScoringForm):
    """Solutions to be ordered by their rewards. Fields that only a text retriever could use are ignored."""

    PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
    PURPOSE = "Solutions, best first, as Cohere, Jina and vLLM have documents."

    query: Text
    documents: _Documents
    top_n: int | None = Field(None, ge=1)
    return_documents: StrictBool = True

    def to_solutions(self, format: Format, max_steps: int) -> tuple[list[Solution], str]:
        return [_solution(self.query, text, format, max_steps) for text in self.documents], "/documents/{}"

    def response(self, scores: Scores) -> Json:
        """The solutions with the highest rewards, best first; of equal ones in the order of the request."""
        shown = [{"text": text} if self.return_documents else None for text in self.documents]
        results: list[Json] = [
            {"index": index, "relevance_score": min(steps), "document": document}
            for index, (steps, document) in enumerate(zip(scores, shown, strict=True))
        ]
        return {"results": sorted(results, key=lambda result: -result["relevance_score"])[: self.top_n]}


class PairsRequest(ScoringForm):
    """A problem and its solutions, or as many problems as solutions, which are then paired in order."""

    PATHS = ("/score", "/v1/score")
    PURPOSE = "The reward of each solution, as vLLM has the similarity of texts."

    problems: Annotated[list[Text], Field(fail_fast=True), BeforeValidator(_as_list)] = Field(
        validation_alias=AliasChoices("text_1", "queries")
    )
    solutions: Annotated[_Documents, BeforeValidator(_as_list)] = Field(
        validation_alias=AliasChoices("text_2", "documents", "items")
    )

    def to_solutions(self, format: Format, max_steps: int) -> tuple[list[Solution], str]:
        """Raises `InvalidRequest` unless there is one problem, or one for each solution."""
        problems, texts = self.problems, self.solutions
        if len(problems) not in (1, len(texts)):
            raise InvalidRequest(f"{len(problems)} problems were sent for {len(texts)} solutions", "/text_1")
        pairs = zip(problems * (len(texts) // len(problems)), texts, strict=True)
        return [_solution(problem, text, format, max_steps) for problem, text in pairs], "/text_2/{}"

    def response(self, scores: Scores) -> Json:
        return _list({"object": "score", "score": min(steps)} for steps in scores)


def _solution(problem: str, text: str, format: Format, max_steps: int) -> Solution:
    tags = () if format.tag is None else (format.tag,)
    return Solution(tuple(step_text.split(text, "auto", max_steps, tags)), problem=problem)


def _list(entries: Iterable[Json]) -> Json:
    data = [{"index": index} | entry for index, entry in enumerate(entries)]
    return {"object": "list", "created": int(time.time()), "data": data}


DIALECTS: Sequence[type[ScoringForm]] = (ClassifyRequest, PoolingRequest, RerankRequest, PairsRequest)


def _work(request: ScoringForm, scorer: RequestScorer, settings: Settings, lease: Lease) -> Work[Json]:
    """The response to a body. Raises `TooManySolutions`, and `Unscorable` if a solution can't be scored."""
    max_steps = settings.max_steps
    solutions, pointer = request.to_solutions(scorer.models[0].engine.format, max_steps)
    lease.solutions = len(solutions)
    if len(solutions) > settings.max_solutions:
        raise TooManySolutions(len(solutions), settings.max_solutions)
    raise_first_unscorable(
        (why_unscorable(k, each, max_steps) for k, each in enumerate(solutions) if each.prompt is None), pointer
    )
    split = [solution for solution in solutions if solution.prompt is None]
    if split and scorer.demo is not None and not (notice := domain_notice(scorer.demo, split)).in_domain:
        raise InvalidRequest(notice.detail)  # there is no place for steps without a score
    outcomes = yield Score(dict(enumerate(solutions)), strict=True)
    raise_first_unscorable(outcomes.values(), pointer)
    scores = [outcome.values for outcome in outcomes.values()]
    named = {"id": f"{request.PATHS[0][1:]}-{uuid.uuid4().hex}", "model": scorer.name}
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), scorer.usage.tokens)
    return named | request.response(scores) | {"usage": usage}


def _add(form: type[ScoringForm]) -> None:
    async def answer(service: TheService, request: form, lease: TheLease) -> Json:  # type: ignore[valid-type]
        with service.models.chosen(request.model) as models:  # type: ignore[attr-defined]
            scorer = RequestScorer(service, models, lease)
            return await scorer.finish(_work(request, scorer, service.settings, lease))

    first, *others = form.PATHS
    router.post(first, description=form.PURPOSE, **describe(first[1:]))(answer)
    for path in others:
        router.post(path, include_in_schema=False)(answer)


for _form in DIALECTS:
    _add(_form)


@router.post("/tokenize", description="The token ids of a prompt, as vLLM has them.", **describe("tokenize"))
async def tokenize(service: TheService, request: TokenizeRequest, lease: TheLease) -> Json:
    """The token ids of a prompt. Raises `InvalidRequest` for a prompt that can't fit the model's window."""
    prompt, size = Prompt(request.prompt, request.add_special_tokens), len(request.prompt)
    with service.models.chosen(request.model) as (model,), model.encoding([size], lease.share):
        format, limit = model.engine.format, model.engine.description.max_tokens
        if (least := -(-size // format.longest_token)) > limit:
            raise InvalidRequest(f"the prompt takes at least {least} tokens, the limit is {limit}", "/prompt")
        ids = await lease.read(partial(format.tokenize, prompt), size)
        return {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": None}
