"""OpenAI's addresses. Whoever knows that API needs to know nothing of this server."""

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from server.ballot import WrfTerms
from server.body import WorkRoute
from server.context import Context, context_of
from server.errors import TABLE, problem
from server.gateway.candidates import Candidates, text_of
from server.gateway.election import Elected, Progress, Terms, elect
from server.gateway.schema import ChatRequest, Json
from server.gateway.stream import Chunks, event
from server.gateway.upstream import Upstream, read_on
from server.openapi import problems
from server.service import TheService
from server.settings import Settings
from unprm.errors import TooManySolutions

_LISTING = (
    "invalid_request",
    "unauthorized",
    "body_too_large",
    "internal",
    "upstream_failed",
    "upstream_refused",
    "overloaded",
    "shutting_down",
    "deadline_exceeded",
)
_CODES = tuple(code for code in TABLE if code not in ("not_found", "method_not_allowed", "no_answer"))


class GatewayRoute(WorkRoute):
    """Has more time than a vote: completions are waited for."""

    @staticmethod
    def seconds(settings: Settings) -> float:
        """Time for a request at the most."""
        return settings.gateway_seconds


def router(upstream: Upstream) -> APIRouter:
    """The routes for this upstream."""
    routes = APIRouter(prefix="/v1", route_class=GatewayRoute)
    about = APIRouter(route_class=WorkRoute)

    async def chat(request: Request, asked: ChatRequest, service: TheService) -> Response:
        """Answers as OpenAI's API does, with the completion that a vote elects among candidates of the upstream.

        `unprm` chooses how; in the answer it tells how it came about.
        """
        context = context_of(request.scope)
        if asked.uses_tools:
            return await _relayed(upstream, asked)
        terms = _terms(asked, service.settings)
        steps = elect(service, Candidates(upstream, asked, terms.budget), terms, context)
        if asked.stream:
            return await _streamed(asked, steps, context)
        async for step in steps:
            if isinstance(step, Elected):
                return JSONResponse(_answer(asked, step))
        raise AssertionError("an election ends with somebody elected")

    async def models() -> Any:
        """The upstream's models."""
        return await upstream.models()

    secured: Json = {"security": [{"key": []}, {}]}
    routes.add_api_route(
        "/chat/completions",
        chat,
        methods=["POST"],
        operation_id="chat_completions",
        responses=problems(_CODES),
        openapi_extra=secured,
        response_model=None,
    )
    about.add_api_route("/models", models, operation_id="models", responses=problems(_LISTING), openapi_extra=secured)
    routes.include_router(about)
    return routes


def _terms(asked: ChatRequest, settings: Settings) -> Terms:
    election = asked.unprm
    budget = election.budget or settings.gateway_budget
    if budget > settings.max_solutions:
        raise TooManySolutions(budget, settings.max_solutions)
    assert asked.problem is not None, "the request's validation asks for it"
    return Terms(
        problem=asked.problem,
        strategy=election.strategy or settings.gateway_strategy,
        budget=budget,
        confidence=settings.gateway_confidence if election.confidence is None else election.confidence,
        round=election.round,
        wrf=WrfTerms(election.alpha, election.normalization),
        model=election.model,
        scoring={"aggregate": election.aggregate, "split": election.split, "extraction": election.extraction},
    )


def _answer(asked: ChatRequest, elected: Elected) -> Json:
    return {
        "id": _new_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": elected.sampled.model or asked.model,
        "choices": [elected.choice | {"index": 0}],
        "usage": elected.sampled.usage,
        "unprm": elected.report.model_dump(mode="json"),
    }


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


async def _relayed(upstream: Upstream, asked: ChatRequest) -> Response:
    """The upstream's answer as it is, streamed or not."""
    told = asked.model_dump(mode="json", exclude_unset=True, exclude={"unprm"})
    answer = await upstream.relay(told)
    return StreamingResponse(read_on(answer), media_type=answer.headers.get("content-type", "application/json"))


async def _streamed(asked: ChatRequest, steps: AsyncIterator[Progress | Elected], context: Context) -> Response:
    """What happens before the first round is over is answered with a status of its own."""
    first = await anext(steps)
    return StreamingResponse(_events(asked, first, steps, context), media_type="text/event-stream")


async def _events(
    asked: ChatRequest, step: Progress | Elected, steps: AsyncIterator[Progress | Elected], context: Context
) -> AsyncIterator[bytes]:
    chunks = Chunks(_new_id(), asked.model)
    try:
        while isinstance(step, Progress):
            yield chunks.progress(step)
            step = await anext(steps)
    except Exception as error:  # the status is out: whatever is wrong is an event, as with OpenAI
        yield event(problem(error, context.request_id, gateway=True).body)
        return
    usage = bool((asked.stream_options or {}).get("include_usage"))
    for part in chunks.answer(step, text_of(step.choice), usage):
        yield part
