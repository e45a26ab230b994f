"""Loading, swapping and unloading models at run time; needs the admin key, and is absent if none is set."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path

from unprm.models.options import LoadModelRequest
from unprm.types import Engine
from unprm.wire import ModelName, ModelsResponse

from ..context import TheContext
from ..service import Service, TheService
from .route import WorkRoute

Open = Callable[[LoadModelRequest], Engine]
"""Loads a model; blocking."""


def router(open_model: Open) -> APIRouter:
    """The routes."""
    admin = APIRouter(prefix="/admin/models", tags=["admin"], route_class=WorkRoute)

    @admin.get("")
    async def list_models(service: TheService) -> ModelsResponse:
        """All models and their states, the default first."""
        return _states(service)

    @admin.post("", status_code=202)
    async def load_model(service: TheService, request: LoadModelRequest, _: TheContext) -> ModelsResponse:
        """Starts loading a model beside the others. Once ready, it replaces the model of the same name, which is
        unloaded when its last request is answered; if loading fails, that model stays."""
        service.models.load(request.name, lambda: open_model(request))
        return _states(service)

    @admin.delete("/{name:path}", status_code=202)
    async def unload_model(name: Annotated[ModelName, Path()], service: TheService) -> ModelsResponse:
        """Stops serving a model; it is unloaded when its last request is answered."""
        service.models.unload(name)
        return _states(service)

    return admin


def _states(service: Service) -> ModelsResponse:
    return ModelsResponse(models=service.models.states())
