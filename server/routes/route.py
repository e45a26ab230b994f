"""Routes for work: limited in time and in body size, and ended when their caller disconnects."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unprm.errors import InvalidRequest, UnprmError

from ..admission import Claims
from ..context import context_of, respond
from ..http.body import check_media_type, read_body, validated
from ..http.errors import event
from ..service import Service
from ..settings import Settings

TIMEOUT_HEADER = "X-Request-Timeout"
SENT_BYTES = 65_536
"""Bytes of an answer that are handed to the connection at once; they are then out of the caller's share."""


class WorkRoute(APIRoute):
    """A route that may take long. It reads the body, then answers until time is up or the caller disconnects.

    The latter two cancel the endpoint, and with it its work in the model's queue. An endpoint with a body is called
    with the service, the validated body and the request's context, in this order. It returns a model or a `Response`.
    FastAPI calls endpoints without a body.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answering = self.app
        self.app = self._serve

    @staticmethod
    def seconds(settings: Settings) -> float:
        """Maximum time for a request."""
        return settings.max_request_seconds

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """What makes the response to a request whose body is already read."""
        return super().get_route_handler() if self.body_field is None else self._handle

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `ShuttingDown`, `DeadlineExceeded`, `Overloaded`, and the errors of `read_body`."""
        service: Service = scope["app"].state.service
        headers, context = Headers(scope=scope), context_of(scope)
        claims, limit = context.claims, self.seconds(service.settings)
        start: Message | None = None

        async def send_noted(message: Message) -> None:
            nonlocal start
            start = start or message
            await send(message)

        try:
            async with claims.admitted(context.arrived, seconds_of(headers, limit), limit):
                context.body = await read_body(headers, receive, service.settings.max_body_bytes, claims.hold)
                context.size = len(context.body)
                await answer(self._answering, scope, receive, send_noted, claims)
        except UnprmError as error:
            if start is None:
                raise
            await _break_off(error, start, scope, send)

    async def _handle(self, request: Request) -> Response:
        """The endpoint's response. Raises the errors of `check_media_type` and `validated`, and the endpoint's."""
        service: Service = request.app.state.service
        context = context_of(request.scope)
        check_media_type(request.headers)
        assert self.body_field is not None, "FastAPI handles the others"
        limits = service.settings.max_solutions, service.settings.max_steps
        body = await service.read(context, partial(validated, self.body_field.validate, context.body, *limits))
        response = await self.endpoint(service, body, context)
        if not isinstance(response, Response):
            content = await service.read(context, response.model_dump_json)
            response = Response(content, self.status_code or 200, media_type="application/json")
        if not isinstance(response, StreamingResponse):
            context.claims.hold(len(response.body))
        return response


async def _break_off(error: UnprmError, start: Message, scope: Scope, send: Send) -> None:
    """Ends a response that has begun: a stream of events with one of the error, as with OpenAI; any other is left
    incomplete, and its connection closed."""
    body = respond(error, scope).body
    if Headers(raw=start["headers"]).get("content-type", "").startswith("text/event-stream"):
        await send({"type": "http.response.body", "body": event(body, "error")})


async def answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send, claims: Claims) -> None:
    """Runs an app that needs no body, and cancels it when the caller disconnects before the answer is complete.

    Once it is complete, cancelling would save nothing: it is sent in parts, each when the one before is nearly written,
    until the protocol hangs up on a caller that reads none of them.
    """
    watch = asyncio.create_task(_watch(receive, claims))

    async def send_in_parts(message: Message) -> None:
        if _whole(message):
            watch.cancel()
            if claims.over:  # only just now: a cancellation that is still due takes effect here
                await asyncio.sleep(0)
            else:
                claims.finish()
        for part in _parts(message):
            await send(part)

    try:
        # all that will come is that the caller disconnects, which is watched for here
        await app(scope, asyncio.Queue[Message]().get, send_in_parts)
    finally:
        watch.cancel()


def _whole(message: Message) -> bool:
    """Whether the answer is complete: at its start if its length is known, else with its last part."""
    if message["type"] == "http.response.start":
        return "content-length" in Headers(raw=message["headers"])
    return not message.get("more_body", False)


def _parts(message: Message) -> Iterator[Message]:
    """The message, its body in parts of at most `SENT_BYTES`."""
    body = memoryview(message.get("body", b""))
    last = max(0, len(body) - 1) // SENT_BYTES * SENT_BYTES
    for start in range(0, last, SENT_BYTES):
        yield {**message, "body": bytes(body[start : start + SENT_BYTES]), "more_body": True}
    yield {**message, "body": bytes(body[last:])} if last else message


async def _watch(receive: Receive, claims: Claims) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    claims.end(ClientDisconnect())


def seconds_of(headers: Headers, cap: float) -> float:
    """Seconds for the request: what its header asks for, at most the server's `cap`. Raises `InvalidRequest`."""
    sent = headers.get(TIMEOUT_HEADER)
    if sent is None:
        return cap
    try:
        seconds = float(sent)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequest(f"{TIMEOUT_HEADER} must be a positive number of seconds")
    return min(seconds, cap)
