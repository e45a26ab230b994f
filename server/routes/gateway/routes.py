"""OpenAI's endpoints: a client of that API can use them unchanged."""

import json
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from unprm import pipeline
from unprm.election.acceptance import acceptance
from unprm.errors import InvalidRequest, NotText, UpstreamFailed, UpstreamRefused
from unprm.fields import unknown
from unprm.openai.models import Json
from unprm.types import DEFAULT_STRATEGY, Usage
from unprm.votes.registry import VOTES

from ...admission import Context, context_of
from ...errors import TABLE, problem
from ...scoring import RequestScorer
from ...service import Service
from ...settings import Settings
from ..openapi import problems
from ..route import WorkRoute
from .candidates import SampledCandidates, Source
from .election import Elected, ElectionTerms, Rounds, elect, elect_all
from .messages import CountRequest, MessageEvents, MessagesRequest, message
from .replies import Sampled
from .responses import ResponsesRequest, response
from .schema import (
    BUDGET,
    MAX_CANDIDATES,
    MISSPELLED,
    NAMED,
    BulkRequest,
    ChatRequest,
    CompletionRequest,
    Passed,
    TooManyCandidates,
)
from .stream import EVENTS, Chunks, ElectionStream, chat_completion
from .upstream import Upstream

T = TypeVar("T")

_LISTED = (
    "invalid_request",
    "unauthorized",
    "foreign_site",
    "body_too_large",
    "internal",
    "upstream_failed",
    "upstream_refused",
    "overloaded",
    "shutting_down",
    "deadline_exceeded",
)
_UNREAD = "(the conversation)"
"""Stands for the problem where models score by log-probabilities alone: images are no hindrance then."""
_WITHOUT_READING = "send the problem as `unprm.problem`, or name a vote without rewards, as `majority`"
_CODES = tuple(code for code in TABLE if code not in ("not_found", "method_not_allowed", "no_answer"))


class GatewayRoute(WorkRoute):
    """A route with more time than a vote, because it waits for completions."""

    seconds = attrgetter("gateway_seconds")


def upstreams(service: Service) -> dict[str, Upstream]:
    """The upstreams of the settings, by name."""
    return {name: Upstream(options, service) for name, options in service.settings.upstreams().items()}


@dataclass(frozen=True, slots=True)
class Gateway:
    """What an endpoint answers a request with. `budget`: of the request's header."""

    service: Service
    upstreams: Mapping[str, Upstream]
    context: Context
    budget: int | None = None

    @property
    def upstream(self) -> Upstream:
        """The first one, for what is not elected."""
        return next(iter(self.upstreams.values()))

    def identified(self, prefix: str) -> str:
        """A new id for the response, known to its context."""
        self.context.response_id = prefix + uuid.uuid4().hex
        return self.context.response_id

    async def read(self, function: Callable[[], T]) -> T:
        """As `Service.read`, all texts of the request."""
        return await self.service.read(self.context, function)

    async def election(self, request: ChatRequest) -> partial[Coroutine[Any, Any, Elected]]:
        """The election, still to be called. Raises the errors that are known before the upstream is called."""
        await self.check_names([request])
        service, context, terms = self.service, self.context, await self.terms(request)
        with service.models.chosen(terms.request.model):
            groups = [[each] for each in terms.sources] if request.unprm.on_reject == "escalate" else [terms.sources]
            first, *further = [
                await self.read(
                    partial(SampledCandidates, service, group, request, terms.strategy, terms.by_logprobs, context)
                )
                for group in groups
            ]
            return partial(elect, service, first, further, terms, context)

    async def check_names(self, requests: Sequence[ChatRequest]) -> None:
        """Raises `InvalidRequest` for a model whose name seems to choose a vote, unless the upstream lists that name or
        can't list any."""
        for name in {request.model for request in requests if request.may_be_misnamed}:
            try:
                await self.upstream.model(name, self.context)
            except HTTPException:
                raise InvalidRequest(MISSPELLED, "/model") from None
            except (UpstreamRefused, UpstreamFailed):
                pass  # it has no list

    async def relayed(self, path: str, request: Passed, count: int) -> Response:
        """The upstream's answer unchanged, streamed or not, to a request for a number of completions."""
        _check_count(count, self.service.settings)
        dump = partial(request.model_dump, mode="json", exclude_unset=True, exclude={"unprm"})
        parts = self.upstream.relay(path, await self.read(dump), self.context)
        streamed = (await anext(parts)).startswith(b"text/event-stream")
        # whatever else the upstream calls it: nobody's browser is to take it for a page
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type=EVENTS if streamed else "application/json")

    async def terms(self, request: ChatRequest, pointer: str = "") -> ElectionTerms:
        """Raises `TooManyCandidates`, `UnknownModel`, `ModelUnavailable`, and `InvalidRequest` for messages that the
        PRM would have to read and can't, and for a risk that no calibration fits. `pointer`: to the request."""
        election, service, settings = request.unprm, self.service, self.service.settings
        sources = self._sources(request, pointer)
        problem, why_majority = None, None
        with service.models.chosen(election.model) as models:
            scorer = RequestScorer(service, models, self.context)
            strategy = election.strategy or settings.gateway_strategy or DEFAULT_STRATEGY
            if election.strategy is None and settings.gateway_strategy is None and request.may_call:
                why_majority = "tools may be called"
            elif VOTES[strategy].signal == "reward":
                read_none = all(model.engine.description.by_logprobs for model in models)
                try:
                    problem = _UNREAD if read_none else await self.read(partial(request.problem, pointer))
                except InvalidRequest as error:
                    if election.strategy is not None or not isinstance(error, NotText):
                        raise InvalidRequest(f"{error}; {_WITHOUT_READING}", error.pointer) from None
                    why_majority = f"the PRM can't read the conversation: {error}"
                else:
                    if election.strategy is None and settings.gateway_strategy is None:
                        why_majority = pipeline.why_majority(scorer, problem)
            if why_majority is not None:
                strategy, problem = "majority", None
            if VOTES[strategy].signal == "reward":  # nothing is bought that nobody can score
                for model in models:
                    model.scorer.check_ready()
            if election.risk is not None:
                at = f"{pointer}/unprm/risk"
                if request.may_call:
                    raise InvalidRequest(
                        "a calibration is of answers, not of tool calls: send a risk without tools", at
                    )
                acceptance(scorer.calibration, election.risk, [strategy], election, scorer.name, election.aggregate, at)
            by_logprobs = VOTES[strategy].signal == "reward" and scorer.by_logprobs
        question = await self.read(request.question)
        stable = settings.gateway_stable if election.stable is None else election.stable
        several = len(self.upstreams) > 1
        return ElectionTerms(election, question, problem, strategy, sources, stable, why_majority, by_logprobs, several)

    def _sources(self, request: ChatRequest, pointer: str) -> list[Source]:
        """Where candidates are sampled, and how many. Raises `InvalidRequest`."""
        election, settings = request.unprm, self.service.settings
        budgets = [self.budget or request.budget, election.budget]
        if election.models and any(budgets):
            raise InvalidRequest("models say how many candidates there are: send no budget", f"{pointer}/unprm/models")
        for name in election.models:
            if name not in self.upstreams:
                raise InvalidRequest(unknown(name, self.upstreams, "an upstream"), f"{pointer}/unprm/models")
        budget = next(filter(None, budgets), settings.gateway_budget or min(BUDGET, settings.max_candidates))
        escalates = election.on_reject == "escalate"
        counts = election.models or dict.fromkeys(self.upstreams if escalates else [*self.upstreams][:1], budget)
        _check_count(sum(election.models.values()) or budget, settings)
        if escalates and len(counts) == 1:
            raise InvalidRequest(
                "there is no further upstream: it is set by another --upstream-url", f"{pointer}/unprm/on_reject"
            )
        return [Source(name, self.upstreams[name], count) for name, count in counts.items()]


async def _gateway(request: Request) -> Gateway:
    return Gateway(request.app.state.service, request.app.state.upstreams, context_of(request.scope))


TheGateway = Annotated[Gateway, Depends(_gateway)]
"""As a parameter of an endpoint."""
_Budget = Annotated[
    int | None,
    Header(alias="X-ITS-Budget", ge=1, le=MAX_CANDIDATES, description="In place of a body's `budget`, as in its_hub."),
]


async def _electing(gateway: TheGateway, budget: _Budget = None) -> Gateway:
    return replace(gateway, budget=budget)


ElectingGateway = Annotated[Gateway, Depends(_electing)]
"""The same for an endpoint that elects."""

router = APIRouter(prefix="/v1", route_class=GatewayRoute)
_listing = APIRouter(route_class=WorkRoute)


def _described(name: str, codes: Iterable[str] = _CODES) -> Json:
    """The options of an operation's FastAPI route."""
    return {"operation_id": name, "responses": problems(codes), "openapi_extra": {"security": [{"key": []}, {}]}}


@router.post("/chat/completions", response_model=None, **_described("chat_completions"))
async def chat(gateway: ElectingGateway, chat_request: ChatRequest) -> Response | Json:
    """Answers as OpenAI's API does, with the completion that a vote elects among the upstream's candidates.

    `unprm` has the settings of the vote in the request, and its report in the answer.
    """
    id = gateway.identified("chatcmpl-")
    election = await gateway.election(chat_request)
    if chat_request.stream:
        return ElectionStream(election, Chunks(chat_request, id))
    return await gateway.read(partial(chat_completion, chat_request, id, await election()))


@router.post("/chat/completions/bulk", response_model=None, **_described("chat_completions_bulk"))
async def chats(gateway: ElectingGateway, bulk: BulkRequest) -> Json:
    """Answers many requests with one budget: after a first round for each, candidates go where the vote is least
    decided. `data` has a chat completion, or an error, for each request in turn."""
    service, context = gateway.service, gateway.context
    await gateway.check_names(bulk.requests)
    elections = [await gateway.terms(request, f"/requests/{index}") for index, request in enumerate(bulk.requests)]
    contexts = [replace(context, usage=Usage(), response_id=gateway.identified("chatcmpl-")) for _ in elections]

    def candidates() -> list[SampledCandidates]:
        return [
            SampledCandidates(service, terms.sources, request, terms.strategy, terms.by_logprobs, each)
            for request, terms, each in zip(bulk.requests, elections, contexts, strict=True)
        ]

    with ExitStack() as stack:
        rounds = [
            Rounds(service, stack.enter_context(service.models.chosen(terms.request.model)), made, terms, each)
            for made, terms, each in zip(await gateway.read(candidates), elections, contexts, strict=True)
        ]
        results = await elect_all(rounds, bulk.budget)
    context.usage = sum((each.usage for each in contexts), Usage())
    context.solutions = sum(len(each.candidates.sampled.choices) for each in rounds)
    sampled = sum(each.candidates.attempted for each in rounds)
    context.size += sum(each.candidates.sampled.size for each in rounds)

    def answers() -> list[Json]:
        return [
            chat_completion(request, each.response_id, result)
            if isinstance(result, Elected)
            else _failure(result, each)
            for request, result, each in zip(bulk.requests, results, contexts, strict=True)
        ]

    data = await gateway.read(answers)
    return {"object": "list", "data": data, "unprm": {"budget": bulk.budget, "sampled": sampled}}


@router.post("/completions", response_model=None, **_described("completions"))
async def completion(gateway: TheGateway, request: CompletionRequest) -> Response:
    """The upstream's own answer, without a vote."""
    return await gateway.relayed("/completions", request, request.candidates)


@router.post("/responses", response_model=None, **_described("responses"))
async def respond(gateway: ElectingGateway, request: ResponsesRequest) -> Response | Json:
    """As `/v1/chat/completions`, for OpenAI's responses API; with tools or as a stream, without a vote."""
    if request.passed_on:
        return await gateway.relayed("/responses", request, 1)
    id = gateway.identified("resp_")
    election = await gateway.election(await gateway.read(request.chat))
    return await gateway.read(partial(response, request, id, await election()))


@router.post("/messages", response_model=None, **_described("messages"))
async def converse(gateway: ElectingGateway, request: MessagesRequest) -> Response | Json:
    """As `/v1/chat/completions`, for Anthropic's messages API."""
    id = gateway.identified("msg_")
    election = await gateway.election(await gateway.read(request.chat))
    if request.stream:
        return ElectionStream(election, MessageEvents(request.model, id))
    return await gateway.read(partial(message, request.model, id, await election()))


@router.post("/messages/count_tokens", response_model=None, **_described("count_tokens"))
async def count(gateway: TheGateway, request: CountRequest) -> Json:
    """The tokens of a conversation by the upstream's own count."""
    chat = await gateway.read(request.chat)
    counted = Sampled()
    body = await gateway.read(chat.for_upstream) | {"max_tokens": 1}
    body.pop("tool_choice", None)  # no call ends within a token
    await gateway.upstream.sample(body, 1, gateway.context, (), lambda _, sampled: counted.add(sampled))
    gateway.context.claims.charge(counted.tokens)
    return {"input_tokens": counted.context_tokens}


@_listing.get("/models", **_described("models", _LISTED))
async def models(gateway: TheGateway) -> Json:
    """The upstream's models, with the fields that Anthropic's clients read, too."""
    _, cards = await gateway.upstream.models(gateway.context)
    data = [{"type": "model", "display_name": card.get("id")} | card for card in cards]
    ends = {"first_id": data[0].get("id"), "last_id": data[-1].get("id")} if data else {}
    return {"object": "list", "data": data, "has_more": False} | ends


@_listing.get("/models/{name:path}", **_described("retrieve_model", ("not_found", *_LISTED)))
async def model(name: str, gateway: TheGateway) -> Json:
    """One of the upstream's models, by its name or by one that also chooses a vote (`wrf-16@name`)."""
    named = NAMED.fullmatch(name)
    return await gateway.upstream.model(named[3] if named else name, gateway.context) | {"id": name}


router.include_router(_listing)


def _check_count(candidates: int, settings: Settings) -> None:
    if candidates > settings.max_candidates:
        raise TooManyCandidates(candidates, settings.max_candidates)


def _failure(error: Exception, context: Context) -> Json:
    failed = json.loads(bytes(problem(error, context.request_id, "openai").body))
    return {"object": "error", "error": failed["error"]}
