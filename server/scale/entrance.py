"""The entrance: reads a request and forwards it to the replica for its question, or to another if that one dies."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from pydantic_core import from_json
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message

from unprm.affinity import HEADER, bounded, question_hash, ranked
from unprm.budget import Budget
from unprm.errors import DeadlineExceeded, ModelUnavailable, Overloaded, UnprmError

from ..http.body import read_body
from ..http.errors import GATEWAY, event, problem
from ..http.keys import Keys
from ..http.middleware import caller_of, is_open, request_id_of
from ..http.work import TIMEOUT_HEADER, seconds_of
from ..observe.logs import configure
from ..observe.metrics import joined
from ..service import BODIES
from ..sharing import share_of
from .replica import ForwardedRequest
from .settings import ScaleSettings

logger = logging.getLogger(__name__)

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
ATTEMPTS = 4
"""Most replicas that are tried one after the other if each dies: votes and scores can be repeated."""
_GRACE = 1.0
"""Seconds after a request's deadline for the replica to report that it has passed."""
_ADDED_BY_RAY = {b"x-request-id"}
_METRICS_SECONDS = 5.0
"""Time for the replicas to return their metrics: half of Prometheus' timeout."""
_PLACE = ("http_version", "scheme", "server", "client", "root_path", "path", "raw_path", "query_string")
_HOP_BY_HOP = {b"connection", b"content-length", b"keep-alive", b"transfer-encoding"}

_Said = TypeVar("_Said")

app = FastAPI(openapi_url=None, redirect_slashes=False)


class QuestionRouter(RequestRouter):  # type: ignore[misc]
    """Chooses the replica for the question's key, the first argument; the next one if that replica runs more than its
    share of requests."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """One replica per rank."""
        names = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        running = {name: self.replica_queue_len_cache.get(replica.replica_id) or 0 for name, replica in names.items()}
        key = str(pending_request.args[0]) if pending_request is not None else ""
        return [[names[name]] for name in bounded(ranked(key, names), running)]


def _headers(request: Request, request_id: str) -> list[tuple[bytes, bytes]]:
    replaced = {b"x-request-id", TIMEOUT_HEADER.lower().encode()}
    kept = [pair for pair in request.headers.raw if pair[0] not in _HOP_BY_HOP | replaced]
    return [*kept, (b"x-request-id", request_id.encode("latin-1"))]


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0] not in _HOP_BY_HOP | _ADDED_BY_RAY]


async def _bodies(messages: AsyncIterator[Message], start: Message, request_id: str) -> AsyncIterator[bytes]:
    try:
        async for message in messages:
            yield message["body"]
    except RayError as error:  # part of the answer is sent, so another replica can't start over
        logger.error("a replica died over an answer: %s", type(error).__name__)
        if not Headers(raw=start["headers"]).get("content-type", "").startswith("text/event-stream"):
            raise
        yield event(problem(ModelUnavailable("the replica died over this answer"), request_id, gateway=True).body)


def _key(request: ForwardedRequest) -> str:
    """The key of a request's question; without a question, a random key, for any replica."""
    sent = dict(request.headers).get(HEADER.lower().encode())
    if sent is not None:
        return sent.decode("latin-1")
    try:
        body = from_json(request.body)
    except ValueError:  # the replica says what is wrong with it
        return ""
    problem = body.get("problem") if isinstance(body, dict) else None
    return question_hash(problem) if isinstance(problem, str) else uuid.uuid4().hex


@serve.ingress(app)  # copies the app at once, so what its routes call is defined above
class Entrance:
    """Receives HTTP requests; has no model."""

    def __init__(self, replicas: Any, settings: ScaleSettings) -> None:
        """Raises `KeysInvalid`."""
        configure(settings.log_level, settings.log_format)
        self._replicas = replicas
        self._settings = settings
        self._keys = Keys(settings.api_key, settings.api_keys_file)
        self._bodies = Budget(BODIES * settings.max_body_bytes, "bytes")

    @app.get("/metrics")
    async def metrics(self, request: Request) -> Response:
        """The metrics of all replicas, for Prometheus."""
        request_id = request_id_of(request.headers)
        try:
            self._admit(request)
            metrics = await self._replica_metrics()
            # takes milliseconds per replica, during which other requests are to be served
            return Response(await asyncio.to_thread(joined, metrics), media_type=CONTENT_TYPE_LATEST)
        except UnprmError as error:
            return problem(error, request_id)

    @app.api_route("/{path:path}", methods=METHODS)
    async def forward(self, request: Request) -> Response:
        """The answer of a replica, or the error that prevented it."""
        request_id, gateway = request_id_of(request.headers), request.url.path.startswith(GATEWAY)
        most_seconds = self._settings.gateway_seconds if gateway else self._settings.max_request_seconds
        try:
            caller = self._admit(request)
            seconds = seconds_of(request.headers, most_seconds)
            with self._bodies.holding(share_of(caller, request.scope.get("client"))) as hold:
                forwarded, left = await self._read(request, request_id, seconds, hold)
                if gateway:
                    return await self._streamed(forwarded, left, request_id)
                status, headers, body = await self._answered(self._replicas.answer.remote, forwarded, left)
        except ClientDisconnect:
            return Response(status_code=499)
        except UnprmError as error:
            return problem(error, request_id, gateway)
        response = Response(body, status)
        response.raw_headers = _end_to_end(headers)
        response.raw_headers.append((b"content-length", str(len(body)).encode()))
        return response

    async def _streamed(self, request: ForwardedRequest, seconds: float, request_id: str) -> Response:
        """The gateway's answer as it arrives; this costs Ray more work than an answer in one piece."""

        async def begun(key: str, forwarded: ForwardedRequest) -> tuple[Message, AsyncIterator[Message]]:
            messages = aiter(self._replicas.options(stream=True).stream.remote(key, forwarded))
            return await anext(messages), messages

        start, messages = await self._answered(begun, request, seconds)
        response = StreamingResponse(_bodies(messages, start, request_id), start["status"])
        response.raw_headers = _end_to_end(start["headers"])
        return response

    def _admit(self, request: Request) -> str:
        """The caller's name; raises as `caller_of`, before any of the body is read. The replica checks again."""
        is_public = is_open(request.url.path, self._settings.open_metrics)
        return "" if is_public else caller_of(request.headers, self._keys, self._settings.host)

    async def _replica_metrics(self) -> list[tuple[str, list[Metric]]]:
        try:
            results = await self._replicas.broadcast("metrics").results_async(
                timeout_s=_METRICS_SECONDS, return_exceptions=True
            )
        except (TimeoutError, RayError, RayServeException) as error:
            logger.error("no replica told its metrics: %s", type(error).__name__)
            raise ModelUnavailable("no replica told its metrics") from None
        # a replica that died meanwhile has none
        return [result for result in results if not isinstance(result, BaseException)]

    async def _read(
        self, request: Request, request_id: str, seconds: float, hold: Callable[[int], None]
    ) -> tuple[ForwardedRequest, float]:
        """The request with its body, and the seconds left for it. Raises as `read_body`, and `DeadlineExceeded`."""
        until = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                body = await read_body(request.headers, request.receive, self._settings.max_body_bytes, hold)
        except TimeoutError:
            raise DeadlineExceeded(seconds) from None
        place = {name: request.scope[name] for name in _PLACE}
        forwarded = ForwardedRequest(request.method, place, _headers(request, request_id), body)
        return forwarded, max(until - time.monotonic(), 0.001)

    async def _answered(
        self, ask: Callable[[str, ForwardedRequest], Awaitable[_Said]], request: ForwardedRequest, seconds: float
    ) -> _Said:
        """The answer of a replica, or of the next one if that replica dies."""
        key, until = _key(request), time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds + _GRACE):
                for attempt in range(ATTEMPTS):
                    left = max(until - time.monotonic(), 0.001)
                    timed = (TIMEOUT_HEADER.lower().encode(), f"{left:.3f}".encode())
                    try:
                        return await ask(key, request._replace(headers=[*request.headers, timed]))
                    except RayActorError:
                        logger.warning("a replica died over a request, attempt %d of %d", attempt + 1, ATTEMPTS)
        except TimeoutError:
            raise DeadlineExceeded(seconds) from None
        except BackPressureError:
            raise Overloaded("every replica has as much as it takes", 1.0) from None
        except (RayError, RayServeException) as error:
            logger.error("no replica answered: %s", type(error).__name__)
            raise ModelUnavailable("no replica answered") from None
        raise ModelUnavailable(f"{ATTEMPTS} replicas died over this request")
