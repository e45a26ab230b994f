"""Routes about the server and its models: probes, metrics, what is served; and, with a key of their own, those that
load, swap and unload models at run time."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from unprm.errors import UnknownModel
from unprm.models.options import LoadModelRequest
from unprm.pipeline import why_majority
from unprm.types import DEFAULT_STRATEGY, ModelDescription
from unprm.wire import LimitsOut, ModelName, ModelResponse, ModelsResponse, StatusResponse

from ..lease import TheLease
from ..scoring import RequestScorer
from ..service import Service, TheService
from ..settings import CHECKS, NONE
from .openapi import METRICS, PROTECTED, describe
from .route import WorkRoute

about = APIRouter()
listing = APIRouter()
"""The list of served models, for a server without an upstream, whose models are then listed in its place."""
admin = APIRouter(prefix="/admin/models", tags=["admin"], route_class=WorkRoute)
"""The routes that change the served models."""


_INSTEAD = {NONE: "votes are by answers alone", CHECKS: "equations in the steps are checked"}
"""What is done without a model."""


@about.get("/healthz", **describe("healthz"))
async def healthz() -> StatusResponse:
    """Reports that the process is alive."""
    return StatusResponse()


@about.get("/health", include_in_schema=False)
@about.get("/readyz", **describe("readyz"))
async def readyz(service: TheService) -> StatusResponse:
    """Reports whether the models are loaded and reachable, and if not, why; independent of load."""
    service.check_ready()
    return StatusResponse()


@about.get("/version", include_in_schema=False)
async def version(request: Request) -> dict[str, str]:
    """The version of the server, as vLLM reports its own."""
    return {"version": request.app.version}


@about.get("/model", **describe("model", (*PROTECTED, "invalid_request", "unknown_model", "model_unavailable")))
async def model(service: TheService, lease: TheLease, name: ModelName | None = None) -> ModelResponse:
    """Describes a model, by default the first: its input and the server's limits. `models` lists all names."""
    settings = service.settings
    with service.models.chosen(name, least=0) as chosen:
        scorer = RequestScorer(service, chosen, lease)
        served_name = CHECKS if scorer.checks else NONE
        description = ModelDescription(
            name=served_name,
            engine=served_name,
            family=NONE,
            device=NONE,
            dtype=NONE,
            max_tokens=0,
            input_format=f"no model: {_INSTEAD[served_name]}",
        )
        for each in chosen:
            description, served_name = each.engine.description, each.name
        strategy = DEFAULT_STRATEGY if why_majority(scorer, None) is None else "majority"
    fields = dict(description) | {
        "name": served_name,
        "models": service.models.names,
        "default_strategy": strategy,
        "vote_calibration": None if service.vote_calibration is None else service.vote_calibration.about,
        "limits": LimitsOut(
            max_solutions=settings.max_solutions,
            max_steps_per_solution=settings.max_steps,
            max_tokens_per_solution=description.max_tokens,
            max_body_bytes=settings.max_body_bytes,
            max_queued_tokens=settings.max_queued_tokens,
            max_request_seconds=settings.max_request_seconds,
            max_candidates=settings.max_candidates if settings.upstream_url else None,
        ),
    }
    return ModelResponse(**fields)


@listing.get("/v1/models", include_in_schema=False)
async def models(service: TheService) -> dict[str, Any]:
    """The served models that are ready, in the form of OpenAI's API."""
    return {"object": "list", "data": [*_cards(service).values()]}


@listing.get("/v1/models/{name:path}", include_in_schema=False)
async def one_model(service: TheService, name: str) -> dict[str, Any]:
    """One of them."""
    cards = _cards(service)
    if name not in cards:
        raise HTTPException(404, str(UnknownModel([*cards])))
    return cards[name]


def _cards(service: Service) -> dict[str, dict[str, Any]]:
    """What is told of each model that is ready, by its name."""
    common = {"object": "model", "created": 0, "owned_by": "unprm"}
    return {
        model.name: {"id": model.name, **common, "max_model_len": model.engine.description.max_tokens}
        for model in service.models
        if model.is_ready
    }


@about.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(request.app.document, media_type="application/json")


@about.get("/metrics", response_class=PlainTextResponse, **METRICS)
async def metrics(service: TheService) -> Response:
    """Metrics for Prometheus."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@admin.get("")
async def list_models(service: TheService) -> ModelsResponse:
    """All models and their states, the default first."""
    return _states(service)


@admin.post("", status_code=202)
async def load_model(service: TheService, request: LoadModelRequest) -> ModelsResponse:
    """Starts loading a model beside the others. Once ready, it replaces the model of the same name, which is
    unloaded when its last request is answered; if loading fails, that model stays."""
    assert service.open_model is not None, "else there is no such route"
    service.models.load(request.name, partial(service.open_model, request))
    return _states(service)


@admin.delete("/{name:path}", status_code=202)
async def unload_model(name: Annotated[ModelName, Path()], service: TheService) -> ModelsResponse:
    """Stops serving a model; it is unloaded when its last request is answered."""
    service.models.unload(name)
    return _states(service)


def _states(service: Service) -> ModelsResponse:
    return ModelsResponse(models=service.models.states())
