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

from unprm.errors import DeadlineExceeded, InvalidRequest, UnprmError

from ..service import Service
from ..settings import Settings
from .body import check_media_type, read_body, validated
from .context import context_of
from .errors import event, respond
from .lifetime import Lifetime

TIMEOUT_HEADER = "X-Request-Timeout"
_HURRIED = 0.5
"""A time below this share of the server's limit is the caller's own affair if it does not suffice. (A
patient client always sends a little less than the limit.)"""
SENT_BYTES = 65_536
"""Most bytes of an answer that are handed to the connection at once; they are then out of the caller's share."""


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
        limit = self.seconds(service.settings)
        context.seconds = seconds_of(headers, limit)
        context.hurried = context.seconds < _HURRIED * limit
        context.deadline = context.arrived + context.seconds
        start: Message | None = None

        async def send_noted(message: Message) -> None:
            nonlocal start
            start = start or message
            await send(message)

        if context.quota is not None:
            context.quota.check()
        try:
            async with Lifetime(context.deadline, DeadlineExceeded(context.seconds)) as lifetime:
                with service.admitted(lifetime), service.bodies.holding(context.share) as hold:
                    context.body = await read_body(headers, receive, service.settings.max_body_bytes, hold)
                    context.size, context.hold = len(context.body), hold
                    await run(self._answering, scope, receive, send_noted, lifetime)
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
        body = await service.read(context, partial(validated, self.body_field.validate, context.body, service.settings))
        answer = await self.endpoint(service, body, context)
        if not isinstance(answer, Response):
            content = await service.read(context, answer.model_dump_json)
            answer = Response(content, self.status_code or 200, media_type="application/json")
        if not isinstance(answer, StreamingResponse):
            context.hold(len(answer.body))
        return answer


async def _break_off(error: UnprmError, start: Message, scope: Scope, send: Send) -> None:
    """Ends a response that has begun: a stream of events with one of the error, as with OpenAI; any other is left
    incomplete, and its connection closed."""
    body = respond(error, scope).body
    if Headers(raw=start["headers"]).get("content-type", "").startswith("text/event-stream"):
        await send({"type": "http.response.body", "body": event(body)})


async def run(app: ASGIApp, scope: Scope, receive: Receive, send: Send, lifetime: Lifetime) -> None:
    """Runs an app that needs no body, and ends its lifetime when the caller disconnects before the answer is complete.

    Once it is complete, cancelling would save nothing: it is sent in parts, each when the one before is nearly written,
    until the protocol hangs up on a caller that reads none of them.
    """
    watch = asyncio.create_task(_watch(receive, lifetime))

    async def send_at_leisure(message: Message) -> None:
        if _whole(message):
            watch.cancel()
            if lifetime.over:  # only just now: a cancellation that is still due takes effect here
                await asyncio.sleep(0)
            else:
                lifetime.last()
        for part in _parts(message):
            await send(part)

    try:
        # all that will come is that the caller disconnects, which is watched for here
        await app(scope, asyncio.Queue[Message]().get, send_at_leisure)
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


async def _watch(receive: Receive, lifetime: Lifetime) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    lifetime.end(ClientDisconnect())


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
