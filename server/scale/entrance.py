"""The entrance: reads a request, and asks the replica that knows its question; another one, if that one dies."""

import asyncio
import logging
import time
import uuid
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from pydantic_core import from_json
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.requests import ClientDisconnect

from server.errors import GATEWAY, BodyTooLarge, problem
from server.keys import Keys
from server.lifetime import TIMEOUT_HEADER, seconds_of
from server.logs import configure
from server.middleware import caller_of, is_open, request_id_of
from server.scale.metrics import joined
from server.scale.replica import Answered, Asked
from server.scale.settings import ScaleSettings
from unprm.affinity import HEADER, bounded, question_hash, ranked
from unprm.errors import DeadlineExceeded, ModelUnavailable, Overloaded, UnprmError

logger = logging.getLogger(__name__)

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
ATTEMPTS = 4
"""Replicas that are asked one after the other, if each of them dies. Votes and scores may be asked for again."""
_GRACE = 1.0
"""Seconds after a request's deadline, by which the replica has said that it is over."""
_ADDED_BY_RAY = {b"x-request-id"}
_TOLD_SECONDS = 5.0
"""Time for the replicas to tell their metrics: half of what Prometheus waits."""
_HOP_BY_HOP = {b"connection", b"content-length", b"keep-alive", b"transfer-encoding"}

app = FastAPI(openapi_url=None, redirect_slashes=False)


class QuestionRouter(RequestRouter):  # type: ignore[misc]
    """Chooses the replica whose turn it is by the question, the first argument; the next one if it has more than its
    share."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """One replica a rank."""
        names = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        running = {name: self.replica_queue_len_cache.get(own.replica_id) or 0 for name, own in names.items()}
        key = str(pending_request.args[0]) if pending_request is not None else ""
        return [[names[name]] for name in bounded(ranked(key, names), running)]


def _target(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def _headers(request: Request, request_id: str) -> list[tuple[bytes, bytes]]:
    own = {b"host", b"x-request-id", TIMEOUT_HEADER.lower().encode()}
    kept = [pair for pair in request.headers.raw if pair[0] not in _HOP_BY_HOP | own]
    return [*kept, (b"x-request-id", request_id.encode("latin-1"))]


def _key(asked: Asked) -> str:
    """The question's; what has none goes anywhere."""
    told = dict(asked.headers).get(HEADER.lower().encode())
    if told is not None:
        return told.decode("latin-1")
    try:
        body = from_json(asked.body)
    except ValueError:  # the replica says what is wrong with it
        return ""
    problem = body.get("problem") if isinstance(body, dict) else None
    return question_hash(problem) if isinstance(problem, str) else uuid.uuid4().hex


@serve.ingress(app)  # copies the app at once: what its routes call stands above
class Entrance:
    """Takes HTTP, without a model."""

    def __init__(self, replicas: Any, settings: ScaleSettings) -> None:
        """Raises `KeysInvalid`."""
        configure(settings.log_level, settings.log_format)
        self._replicas = replicas
        self._settings = settings
        self._keys = Keys(settings.api_key, settings.api_keys_file)

    @app.get("/metrics")
    async def metrics(self, request: Request) -> Response:
        """The figures of all replicas, for Prometheus."""
        request_id = request_id_of(request.headers)
        try:
            self._admit(request)
            told = await self._told()
            # takes milliseconds for each replica, in which others are to be served
            return Response(await asyncio.to_thread(joined, told), media_type=CONTENT_TYPE_LATEST)
        except UnprmError as error:
            return problem(error, request_id)

    @app.api_route("/{path:path}", methods=METHODS)
    async def forward(self, request: Request) -> Response:
        """The answer of a replica, or the error that kept it from coming."""
        request_id = request_id_of(request.headers)
        try:
            self._admit(request)
            asked = Asked(request.method, _target(request), _headers(request, request_id), await self._body(request))
            status, headers, body = await self._answer(asked, seconds_of(request.headers, self._seconds(request)))
        except ClientDisconnect:
            return Response(status_code=499)
        except UnprmError as error:
            return problem(error, request_id, request.url.path.startswith(GATEWAY))
        response = Response(body, status)
        response.raw_headers = [pair for pair in headers if pair[0] not in _HOP_BY_HOP | _ADDED_BY_RAY]
        response.raw_headers.append((b"content-length", str(len(body)).encode()))
        return response

    def _seconds(self, request: Request) -> float:
        own = self._settings
        return own.gateway_seconds if request.url.path.startswith(GATEWAY) else own.max_request_seconds

    def _admit(self, request: Request) -> None:
        """Raises `Unauthorized` before anything of the body is read. The replica looks again, for the caller's name."""
        if not is_open(request.url.path):
            caller_of(request.headers, self._keys)

    async def _told(self) -> list[tuple[str, list[Metric]]]:
        try:
            told = await self._replicas.broadcast("metrics").results_async(
                timeout_s=_TOLD_SECONDS, return_exceptions=True
            )
        except (TimeoutError, RayError, RayServeException) as error:
            logger.error("no replica told its metrics: %s", type(error).__name__)
            raise ModelUnavailable("no replica told its metrics") from None
        return [own for own in told if not isinstance(own, BaseException)]  # one that dies over it has nothing to tell

    async def _body(self, request: Request) -> bytes:
        limit = self._settings.max_body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise BodyTooLarge(limit, int(declared))
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise BodyTooLarge(limit)
        return bytes(body)

    async def _answer(self, asked: Asked, seconds: float) -> Answered:
        key, until = _key(asked), time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds + _GRACE):
                for attempt in range(ATTEMPTS):
                    left = max(until - time.monotonic(), 0.001)
                    timed = (TIMEOUT_HEADER.lower().encode(), f"{left:.3f}".encode())
                    try:
                        own = asked._replace(headers=[*asked.headers, timed])
                        answered: Answered = await self._replicas.answer.remote(key, own)
                        return answered
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
