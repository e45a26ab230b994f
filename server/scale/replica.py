"""A replica: the application of a single server, called by the entrance instead of over HTTP."""

import asyncio
import os
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.metrics_core import Metric
from ray import serve
from starlette.types import ASGIApp, Message

from unprm.errors import ModelUnavailable
from unprm.types import Engine

from ..app import create_app
from ..models.load import load
from ..observe.logs import configure
from ..observe.metrics import Metrics
from .settings import ScaleSettings

QUEUED_TOKENS = "queued_tokens"
"""Name of the metric that replicas are scaled by."""


class ForwardedRequest(NamedTuple):
    """A request as received; `place`: its address and connection, as fields of an ASGI scope."""

    method: str
    place: dict[str, Any]
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Answered(NamedTuple):
    """The response to a forwarded request."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Replica:
    """One engine. A model that hangs or fails for good ends the process, which Ray then replaces."""

    async def __init__(self, settings: ScaleSettings, engine: Engine | None = None) -> None:  # type: ignore[misc]
        """Returns once its models are ready; raises `ModelUnavailable`. `engine`: served instead of the models that
        the settings name."""
        configure(settings.log_level, settings.log_format)
        metrics = Metrics()
        sources = {
            name: partial(load, settings, request, metrics.called_judge) for name, request in settings.models().items()
        }
        self._app = create_app(
            settings, sources if engine is None else engine, lost=lambda: os._exit(1), metrics=metrics
        )
        self._service = self._app.state.service
        self._running = self._app.router.lifespan_context(self._app)
        await self._running.__aenter__()
        if not await self._service.models.loaded():
            raise ModelUnavailable("the model could not be loaded; the replica's log says why")

    async def answer(self, key: str, request: ForwardedRequest) -> Answered:
        """The response to a request; `key`, the question's, is for `QuestionRouter`."""
        start, *parts = [message async for message in _messages(self._app, request)]
        return Answered(start["status"], start["headers"], b"".join(part["body"] for part in parts))

    async def stream(self, key: str, request: ForwardedRequest) -> AsyncGenerator[Message]:
        """As `answer`, but yields each ASGI message as it comes."""
        async for message in _messages(self._app, request):
            yield message

    async def metrics(self) -> tuple[str, list[Metric]]:
        """Its name in the cluster, and its metrics."""
        return serve.get_replica_context().replica_id.unique_id, self._service.metrics.collect()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The metric that replicas are scaled by."""
        return {QUEUED_TOKENS: float(sum(self._service.models.queued_tokens.values()))}

    async def __del__(self) -> None:  # Ray awaits it
        await self._service.drain()
        await self._running.__aexit__(None, None, None)


async def _messages(app: ASGIApp, request: ForwardedRequest) -> AsyncGenerator[Message]:
    """The messages of the app's answer; the app is cancelled if they are not read to the end."""
    scope = {"type": "http", "method": request.method, "headers": request.headers, **request.place}
    received: asyncio.Queue[Message] = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": request.body})
    sent: asyncio.Queue[Message | None] = asyncio.Queue()
    running = asyncio.ensure_future(app(scope, received.get, sent.put))
    running.add_done_callback(lambda _: sent.put_nowait(None))
    try:
        while (message := await sent.get()) is not None:
            yield message
        await running  # raises the app's error
    finally:
        running.cancel()
