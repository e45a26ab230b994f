"""The application: routes, middleware, error handlers and lifespan, put together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from unprm.errors import UnprmError
from unprm.version import version

from . import page
from .middleware import Access, Envelope
from .models.model import EngineOrLoader, LoadModel
from .observe import Metrics
from .problem_details import respond
from .routes import about, dialects, feedback, votes
from .routes.openapi import ABOUT, DocumentedApp
from .service import Service
from .settings import Settings


def create_app(
    settings: Settings,
    models: EngineOrLoader | Mapping[str, EngineOrLoader],
    open_model: LoadModel | None = None,
    lost: Callable[[], None] = lambda: None,
    metrics: Metrics | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The server as an ASGI application.

    `models`: a loaded engine, or a function that loads one, or several of these by name, the default first. Loading
    runs in the background once the app has started; until then, requests that need a model get 503. The app closes all
    engines at its shutdown. `open_model` loads the models requested at `/admin/models`. `lost` is called when a model
    hangs or fails for good: the process should then end, so that another one can replace it. `metrics`: what the app
    counts in, if others do too. `clock`: in seconds, by which the parts of a request are timed.

    Raises `KeysInvalid`, `JournalUnusable`, and `RecordInvalid` for a calibration of votes that is none.
    """
    service = Service(settings, models, lost, metrics or Metrics(), clock)
    app = DocumentedApp(
        title="unprm",
        version=version(),
        description=ABOUT,
        openapi_url=None,  # FastAPI would write the document anew for every request; `about` has it
        docs_url=None,  # FastAPI's page loads scripts from another site; `page` has its own
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(Envelope, service=service, access=Access(settings)),
        ],
        exception_handlers=dict.fromkeys((UnprmError, HTTPException, RequestValidationError), _respond),
    )
    app.state.service = service
    if settings.judge_url is not None:
        # imported only here: the HTTP client takes long to import
        from unprm.engines.judge.selector import Selector
        from unprm.models.judge import open_chat

        app.state.judge = chat = open_chat(settings, settings, service.metrics.count_judge_call)
        written = settings.judge_readout == "chain"
        service.selector = Selector(chat.complete, written=written, max_tokens=settings.judge_tokens)
    for routes in (votes.work, dialects.router, about.about):
        app.include_router(routes)
    if settings.journal is not None:
        app.include_router(feedback.router)
    if not settings.upstream_url:
        app.include_router(about.listing)
    else:
        # imported only here: the HTTP client takes long to import
        from .routes.gateway.routes import router
        from .routes.gateway.upstream import Upstream

        found = settings.upstreams().items()
        app.state.upstreams = {name: Upstream(name, options, service) for name, options in found}
        app.include_router(router)
    app.include_router(page.router)
    if settings.admin_key is not None and open_model is not None:
        service.open_model = open_model
        app.include_router(about.admin)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.models.start()
    testing = None if service.settings.has_judge else asyncio.create_task(service.test_selector())
    try:
        yield
    finally:
        if testing is not None:
            testing.cancel()
        await service.stop()
        if (chat := getattr(app.state, "judge", None)) is not None:
            await chat.close()
        for upstream in getattr(app.state, "upstreams", {}).values():
            await upstream.close()


async def _respond(request: Request, error: Exception) -> Response:
    return respond(error, request.scope)
