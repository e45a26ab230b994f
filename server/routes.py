"""The server's routes; the work itself is in voting.py."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from server import voting
from server.http.body import WorkRoute
from server.http.context import Context, context_of
from server.http.openapi import METRICS, describe, describe_vote
from server.service import TheService
from unprm.types import Strategy
from unprm.votes.decide import STRATEGIES
from unprm.wire import (
    VOTE_REQUESTS,
    CalibrationOut,
    CompareResponse,
    LimitsOut,
    MemoryOut,
    ModelName,
    ModelResponse,
    PreviewRequest,
    PreviewResponse,
    ScoreRequest,
    ScoreResponse,
    SelfTestOut,
    StatusResponse,
    VoteResponse,
    WrfRequest,
)


async def _context(request: Request) -> Context:  # async: FastAPI would otherwise call it in a thread
    return context_of(request.scope)


TheContext = Annotated[Context, Depends(_context)]

work = APIRouter(route_class=WorkRoute)
about = APIRouter()


@work.post("/score_steps", **describe("score_steps"))
async def score_steps(request: ScoreRequest, service: TheService, context: TheContext) -> ScoreResponse:
    """Scores the steps of every solution, in the order of the request."""
    return await voting.score(service, request, context)


def _add_vote(strategy: Strategy) -> None:
    form = VOTE_REQUESTS[strategy]

    async def vote(request: form, service: TheService, context: TheContext) -> VoteResponse:  # type: ignore[valid-type]
        return await voting.vote(service, request, strategy, context)

    work.add_api_route(f"/vote/{strategy}", vote, methods=["POST"], **describe_vote(strategy))


for name in STRATEGIES:
    _add_vote(name)


@work.post("/vote/compare", **describe("vote_compare"))
async def compare(request: WrfRequest, service: TheService, context: TheContext) -> CompareResponse:
    """Takes every vote over one scoring pass; each has the same result as at its own address."""
    return await voting.compare(service, request, context)


@work.post("/preview", **describe("preview"))
async def preview(request: PreviewRequest, service: TheService, context: TheContext) -> PreviewResponse:
    """Shows the exact text, token ids and scored positions of one solution, without running the model."""
    return await voting.preview(service, request, context)


@about.get("/healthz", **describe("healthz"))
async def healthz() -> StatusResponse:
    """Reports that the process is alive."""
    return StatusResponse()


@about.get("/readyz", **describe("readyz"))
async def readyz(service: TheService) -> StatusResponse:
    """Reports whether the model is loaded and the queue accepts requests; if not, why."""
    service.check_ready()
    return StatusResponse()


@about.get("/model", **describe("model"))
async def model(service: TheService, name: ModelName | None = None) -> ModelResponse:
    """Describes a model, by default the first, the input it reads and the server's limits; `models`: all names."""
    settings = service.settings
    with service.models.chosen(name) as (chosen,):
        about, served_name = chosen.engine.description, chosen.name
    return ModelResponse(
        name=served_name,
        models=service.models.names,
        family=about.family,
        base=about.base,
        adapter=about.adapter,
        revision=about.revision,
        engine=about.engine,
        device=about.device,
        dtype=about.dtype,
        input_format=about.input_format,
        digest=about.digest,
        self_test=None if about.self_test is None else SelfTestOut.of(about.self_test),
        memory=None if about.memory is None else MemoryOut.of(about.memory),
        demo=about.demo,
        calibration=None if about.recorded is None else CalibrationOut.of(about.recorded),
        limits=LimitsOut(
            max_solutions=settings.max_solutions,
            max_steps_per_solution=settings.max_steps,
            max_tokens_per_solution=about.max_tokens,
            max_body_bytes=settings.max_body_bytes,
            max_queued_tokens=settings.max_queued_tokens,
            max_request_seconds=settings.max_request_seconds,
        ),
    )


@about.get("/metrics", response_class=PlainTextResponse, **METRICS)
async def metrics(service: TheService) -> Response:
    """Metrics for Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
