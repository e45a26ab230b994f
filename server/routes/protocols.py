"""The endpoints of other servers' protocols: KServe's open inference protocol (version 2), SageMaker's, and what SGLang
and TEI tell of themselves."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from unprm.errors import InvalidRequest
from unprm.version import version
from unprm.wire import ModelName, ScoreRequest, Text

from ..admission import TheContext
from ..service import TheService
from . import votes
from .about import readyz
from .pooling import Json
from .route import WorkRoute

_Name = Annotated[ModelName, Path()]


class Tensor(BaseModel):
    """Texts, in the order of the tensor's elements."""

    name: Literal["problem", "steps"]
    datatype: Literal["BYTES"]
    data: list[Text] = Field(min_length=1, fail_fast=True)


class InferRequest(BaseModel):
    """A problem and the steps of one solution."""

    id: str | None = None
    inputs: list[Tensor] = Field(min_length=2, max_length=2)

    def score_request(self, model: str) -> ScoreRequest:
        """Raises `InvalidRequest`."""
        sent = {each.name: each.data for each in self.inputs}
        if len(sent) != 2 or len(sent["problem"]) != 1:
            raise InvalidRequest("expected `problem`, of one text, and `steps`", "/inputs")
        (problem,), steps = sent["problem"], sent["steps"]
        return ScoreRequest.model_validate(
            {"problem": problem, "solutions": [steps], "model": model, "on_invalid": "refuse"}
        )


async def infer(name: _Name, service: TheService, request: InferRequest, context: TheContext) -> Json:
    """The step scores of a solution, and its reward."""
    scored = await votes.score(service, await service.read(context, partial(request.score_request, name)), context)
    (solution,) = scored.solutions
    steps = solution.step_scores or []
    outputs = [_tensor("step_scores", len(steps), data=steps), _tensor("reward", 1, data=[solution.reward])]
    return {"model_name": name, "id": request.id or context.request_id, "outputs": outputs}


def _tensor(name: str, size: int, datatype: str = "FP32", **data: Any) -> Json:
    return {"name": name, "datatype": datatype, "shape": [size], **data}


async def ready(service: TheService) -> Json:
    """Reports whether the models are ready."""
    service.check_ready()
    return {"ready": True}


async def model_ready(service: TheService, name: _Name) -> Json:
    """Reports whether a model is ready."""
    with service.models.chosen(name) as (model,):
        model.scorer.check_ready()
    return {"name": name, "ready": True}


async def metadata(service: TheService, name: _Name) -> Json:
    """A model's inputs and outputs; -1: any length."""
    with service.models.chosen(name):
        inputs = [_tensor("problem", 1, "BYTES"), _tensor("steps", -1, "BYTES")]
        outputs = [_tensor("step_scores", -1), _tensor("reward", 1)]
        return {"name": name, "versions": [], "platform": "unprm", "inputs": inputs, "outputs": outputs}


async def model_info(service: TheService) -> Json:
    """The default model, as SGLang describes it."""
    with service.models.chosen(None) as (model,):
        path = model.engine.description.base
        return {"model_path": path, "tokenizer_path": path, "served_model_name": model.name, "is_generation": False}


async def info(service: TheService) -> Json:
    """The default model, as TEI describes it."""
    with service.models.chosen(None) as (model,):
        served = model.engine.description
        sizes = {"max_input_length": served.max_tokens, "max_client_batch_size": service.settings.max_solutions}
        named = {"model_id": model.name, "model_sha": served.revision, "model_dtype": served.dtype}
        return named | sizes | {"version": version()}


_GET: dict[str, Callable[..., Any]] = {
    "/v2/health/live": lambda: {"live": True},
    "/v2/health/ready": ready,
    "/v2/models/{name:path}/ready": model_ready,
    "/v2/models/{name:path}": metadata,
    **dict.fromkeys(("/model_info", "/get_model_info"), model_info),
    "/info": info,
    **dict.fromkeys(("/health", "/health_generate", "/ping"), readyz),
}
_POST: dict[str, Callable[..., Any]] = {"/v2/models/{name:path}/infer": infer, "/invocations": votes.score_steps}

router = APIRouter()
for _path, _endpoint in _GET.items():
    router.add_api_route(_path, _endpoint, include_in_schema=False)
for _path, _endpoint in _POST.items():
    router.add_api_route(_path, _endpoint, methods=["POST"], include_in_schema=False, route_class_override=WorkRoute)
