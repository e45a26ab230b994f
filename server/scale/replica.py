"""A replica: the same application as a server of its own, asked by the entrance in place of HTTP."""

import logging
import os
from functools import partial
from typing import NamedTuple

import httpx
from prometheus_client.metrics_core import Metric
from ray import serve

from server.app import create_app
from server.loading import load
from server.logs import configure
from server.scale.settings import ScaleSettings
from unprm.errors import ModelUnavailable
from unprm.types import Engine

QUEUED_TOKENS = "queued_tokens"
"""Name of what replicas are scaled by."""


class Asked(NamedTuple):
    """A request as it came in; `target`: path and query."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Answered(NamedTuple):
    """The response to it."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Replica:
    """One engine. A model that hangs or fails for good ends the process, which Ray then starts anew."""

    async def __init__(self, settings: ScaleSettings, engine: Engine | None = None) -> None:  # type: ignore[misc]
        """Returns once its models are ready; raises `ModelUnavailable`. `engine`: one to serve in place of those that
        the settings name."""
        configure(settings.log_level, settings.log_format)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log addresses, and who wrote them is a caller
        sources = {name: partial(load, settings, asked) for name, asked in settings.models().items()}
        app = create_app(settings, sources if engine is None else engine, lost=lambda: os._exit(1))
        self._service = app.state.service
        self._running = app.router.lifespan_context(app)
        await self._running.__aenter__()
        if not await self._service.models.loaded():
            raise ModelUnavailable("the model could not be loaded; the replica's log says why")
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://replica", timeout=settings.max_request_seconds
        )

    async def answer(self, key: str, asked: Asked) -> Answered:
        """The response to a request; `key`, the question's, is for whoever chooses a replica."""
        response = await self._http.request(asked.method, asked.target, headers=asked.headers, content=asked.body)
        return Answered(response.status_code, response.headers.raw, response.content)

    async def metrics(self) -> tuple[str, list[Metric]]:
        """Its name in the cluster, and what it tells Prometheus."""
        return serve.get_replica_context().replica_id.unique_id, self._service.metrics.collect()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What replicas are scaled by."""
        return {QUEUED_TOKENS: float(self._service.models.queued_tokens)}

    async def __del__(self) -> None:  # Ray awaits it
        await self._service.drain()
        await self._running.__aexit__(None, None, None)
