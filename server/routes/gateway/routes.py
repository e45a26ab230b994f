"""OpenAI's endpoints: a client of that API can use them unchanged."""

import json
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from unprm import pipeline
from unprm.election.acceptance import acceptance
from unprm.errors import InvalidRequest, NotText
from unprm.openai.models import Json
from unprm.types import DEFAULT_STRATEGY, Usage
from unprm.votes.registry import VOTES

from ...admission import Context, TheContext
from ...errors import TABLE, problem
from ...scoring import RequestScorer
from ...service import Service, TheService
from ...settings import Settings
from ..openapi import problems
from ..route import WorkRoute
from .candidates import SampledCandidates
from .election import Elected, ElectionTerms, Rounds, elect, elect_all
from .messages import CountRequest, MessageEvents, MessagesRequest, message
from .responses import ResponsesRequest, response
from .schema import BUDGET, MISSPELLED, NAMED, BulkRequest, ChatRequest, CompletionRequest, Passed, TooManyCandidates
from .stream import EVENTS, Chunks, ElectionStream, chat_completion
from .upstream import Sampled, Upstream, UpstreamFailed, UpstreamRefused

_LISTING = (
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

    @staticmethod
    def seconds(settings: Settings) -> float:
        """Maximum time for a request."""
        return settings.gateway_seconds


def upstreams(service: Service) -> list[Upstream]:
    """The upstreams of the settings: one, or two."""
    settings, made = service.settings, list[Upstream]()
    for url, key in ((settings.upstream_url, settings.upstream_key), (settings.escalate_url, settings.escalate_key)):
        if url is not None:
            secret = None if key is None else key.get_secret_value()
            made.append(Upstream(url, secret, service))
    return made


def router(upstream: Upstream, second: Upstream | None = None) -> APIRouter:
    """The routes for this upstream. `second`: for answers that are not accepted."""
    routes = APIRouter(prefix="/v1", route_class=GatewayRoute)
    about = APIRouter(route_class=WorkRoute)

    async def chat(service: TheService, chat_request: ChatRequest, context: TheContext) -> Response | Json:
        """Answers as OpenAI's API does, with the completion that a vote elects among the upstream's candidates.

        `unprm` has the settings of the vote in the request, and its report in the answer.
        """
        election = await _election(service, chat_request, context)
        if chat_request.stream:
            return ElectionStream(election, Chunks(chat_request))
        return await service.read(context, partial(chat_completion, chat_request, await election()))

    async def respond(service: TheService, request: ResponsesRequest, context: TheContext) -> Response | Json:
        """As `/v1/chat/completions`, for OpenAI's responses API; with tools or as a stream, without a vote."""
        if request.passed_on:
            return await _relayed("/responses", service, request, 1, context)
        election = await _election(service, await service.read(context, request.chat), context)
        return await service.read(context, partial(response, request, await election()))

    async def converse(service: TheService, request: MessagesRequest, context: TheContext) -> Response | Json:
        """As `/v1/chat/completions`, for Anthropic's messages API."""
        election = await _election(service, await service.read(context, request.chat), context)
        if request.stream:
            return ElectionStream(election, MessageEvents(request.model))
        return await service.read(context, partial(message, request.model, await election()))

    async def count(service: TheService, request: CountRequest, context: TheContext) -> Json:
        """The tokens of a conversation by the upstream's own count."""
        chat = await service.read(context, request.chat)
        counted = Sampled()
        body = await service.read(context, chat.for_upstream) | {"max_tokens": 1}
        body.pop("tool_choice", None)  # no call ends within a token
        await upstream.sample(body, 1, context, (), True, lambda _, sampled: counted.add(sampled))
        context.claims.charge(counted.tokens)
        return {"input_tokens": counted.context_tokens}

    async def _election(
        service: Service, request: ChatRequest, context: Context
    ) -> partial[Coroutine[Any, Any, Elected]]:
        """The election, still to be called. Raises the errors that are known before the upstream is called."""
        await _check_names([request], context)
        terms = await _terms(request, service, context)
        with service.models.chosen(terms.request.model):
            chosen = terms.budget, terms.strategy, terms.by_logprobs
            make = partial(SampledCandidates, service, upstream, request, *chosen, context)
            candidates = await service.read(context, make)
            later = None
            if terms.request.on_reject == "escalate":
                if second is None:
                    raise InvalidRequest("there is no second upstream: it is set by --escalate-url", "/unprm/on_reject")
                escalated = request.model_copy(update={"model": service.settings.escalate_model or request.model})
                make = partial(SampledCandidates, service, second, escalated, *chosen, context)
                later = await service.read(context, make)
            return partial(elect, service, candidates, later, terms, context)

    async def _check_names(requests: Sequence[ChatRequest], context: Context) -> None:
        """Raises `InvalidRequest` for a model whose name seems to choose a vote, unless the upstream lists that name or
        can't list any."""
        for name in {request.model for request in requests if request.may_be_misnamed}:
            try:
                await upstream.model(name, context)
            except HTTPException:
                raise InvalidRequest(MISSPELLED, "/model") from None
            except (UpstreamRefused, UpstreamFailed):
                pass  # it has no list

    async def chats(service: TheService, bulk: BulkRequest, context: TheContext) -> Json:
        """Answers many requests with one budget: after a first round for each, candidates go where the vote is least
        decided. `data` has a chat completion, or an error, for each request in turn."""
        await _check_names(bulk.requests, context)
        elections = [
            await _terms(request, service, context, f"/requests/{index}") for index, request in enumerate(bulk.requests)
        ]
        contexts = [replace(context, usage=Usage()) for _ in elections]

        def candidates() -> list[SampledCandidates]:
            return [
                SampledCandidates(service, upstream, request, terms.budget, terms.strategy, terms.by_logprobs, each)
                for request, terms, each in zip(bulk.requests, elections, contexts, strict=True)
            ]

        with ExitStack() as stack:
            rounds = [
                Rounds(service, stack.enter_context(service.models.chosen(terms.request.model)), made, terms, each)
                for made, terms, each in zip(await service.read(context, candidates), elections, contexts, strict=True)
            ]
            results = await elect_all(rounds, bulk.budget)
        context.usage = sum((each.usage for each in contexts), Usage())
        context.solutions = sum(len(each.candidates.sampled.choices) for each in rounds)
        sampled = sum(each.candidates.attempted for each in rounds)
        context.size += sum(each.candidates.sampled.size for each in rounds)

        def answers() -> list[Json]:
            return [
                chat_completion(request, result) if isinstance(result, Elected) else _failure(result, context)
                for request, result in zip(bulk.requests, results, strict=True)
            ]

        data = await service.read(context, answers)
        return {"object": "list", "data": data, "unprm": {"budget": bulk.budget, "sampled": sampled}}

    async def completion(service: TheService, request: CompletionRequest, context: TheContext) -> Response:
        """The upstream's own answer, without a vote."""
        return await _relayed("/completions", service, request, request.candidates, context)

    async def _relayed(path: str, service: Service, request: Passed, count: int, context: Context) -> Response:
        """The upstream's answer unchanged, streamed or not, to a request for a number of completions."""
        _check_count(count, service.settings)
        dump = partial(request.model_dump, mode="json", exclude_unset=True, exclude={"unprm"})
        parts = upstream.relay(path, await service.read(context, dump), context)
        streamed = (await anext(parts)).startswith(b"text/event-stream")
        # whatever else the upstream calls it: nobody's browser is to take it for a page
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type=EVENTS if streamed else "application/json")

    async def models(context: TheContext) -> Json:
        """The upstream's models, with the fields that Anthropic's clients read, too."""
        _, cards = await upstream.models(context)
        data = [{"type": "model", "display_name": card.get("id")} | card for card in cards]
        ends = {"first_id": data[0].get("id"), "last_id": data[-1].get("id")} if data else {}
        return {"object": "list", "data": data, "has_more": False} | ends

    async def model(name: str, context: TheContext) -> Json:
        """One of the upstream's models, by its name or by one that also chooses a vote (`wrf-16@name`)."""
        named = NAMED.fullmatch(name)
        return await upstream.model(named[3] if named else name, context) | {"id": name}

    secured: Json = {"security": [{"key": []}, {}]}
    for path, endpoint, name in (
        ("/chat/completions", chat, "chat_completions"),
        ("/chat/completions/bulk", chats, "chat_completions_bulk"),
        ("/completions", completion, "completions"),
        ("/responses", respond, "responses"),
        ("/messages", converse, "messages"),
        ("/messages/count_tokens", count, "count_tokens"),
    ):
        routes.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            operation_id=name,
            responses=problems(_CODES),
            openapi_extra=secured,
            response_model=None,
        )
    about.add_api_route("/models", models, operation_id="models", responses=problems(_LISTING), openapi_extra=secured)
    about.add_api_route(
        "/models/{name:path}",
        model,
        operation_id="retrieve_model",
        responses=problems(("not_found", *_LISTING)),
        openapi_extra=secured,
    )
    routes.include_router(about)
    return routes


async def _terms(request: ChatRequest, service: Service, context: Context, pointer: str = "") -> ElectionTerms:
    """Raises `TooManyCandidates`, `UnknownModel`, `ModelUnavailable`, and `InvalidRequest` for messages that the PRM
    would have to read and can't, and for a risk that no calibration fits. `pointer`: to the request."""
    election, settings = request.unprm, service.settings
    budget = election.budget or settings.gateway_budget or min(BUDGET, settings.max_candidates)
    _check_count(budget, settings)
    problem, why_majority = None, None
    with service.models.chosen(election.model) as models:
        scorer = RequestScorer(service, models, context)
        strategy = election.strategy or settings.gateway_strategy or DEFAULT_STRATEGY
        if election.strategy is None and settings.gateway_strategy is None and request.may_call:
            why_majority = "tools may be called"
        elif VOTES[strategy].signal == "reward":
            read_none = all(model.engine.description.by_logprobs for model in models)
            try:
                problem = _UNREAD if read_none else await service.read(context, partial(request.problem, pointer))
            except InvalidRequest as error:
                if election.strategy is not None or not isinstance(error, NotText):
                    raise InvalidRequest(f"{error}; {_WITHOUT_READING}", error.pointer) from None
                why_majority = f"the PRM can't read the conversation: {error}"
            else:
                if election.strategy is None and settings.gateway_strategy is None:
                    why_majority = pipeline.why_majority(scorer, problem)
        if why_majority is not None:
            strategy, problem = "majority", None
        if election.risk is not None:
            at = f"{pointer}/unprm/risk"
            if request.may_call:
                raise InvalidRequest("a calibration is of answers, not of tool calls: send a risk without tools", at)
            acceptance(scorer.calibration, election.risk, [strategy], election, scorer.name, election.aggregate, at)
        by_logprobs = VOTES[strategy].signal == "reward" and scorer.by_logprobs
    question = await service.read(context, request.question)
    stable = settings.gateway_stable if election.stable is None else election.stable
    return ElectionTerms(election, question, problem, strategy, budget, stable, why_majority, by_logprobs)


def _check_count(candidates: int, settings: Settings) -> None:
    if candidates > settings.max_candidates:
        raise TooManyCandidates(candidates, settings.max_candidates)


def _failure(error: Exception, context: Context) -> Json:
    failed = json.loads(bytes(problem(error, context.request_id, "openai").body))
    return {"object": "error", "error": failed["error"]}
