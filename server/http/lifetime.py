"""How long a request lives: until its deadline, or until its caller disconnects."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.context import context_of
from server.http.errors import BodyTooLarge, BodyTooSlow
from server.service import Service
from server.settings import Settings
from unprm.errors import DeadlineExceeded, InvalidRequest

TIMEOUT_HEADER = "X-Request-Timeout"
PART_BYTES, PART_SECONDS = 65_536, 5.0
"""At least this many bytes of a body, or the rest of it, must arrive within each period of this many seconds."""


class Lifetime:
    """Reads the body within its limit, then runs the route until it answers, time is up or the caller disconnects.

    The latter two cancel the route, and with it its work in the model's queue.
    """

    def __init__(self, app: ASGIApp, most_seconds: Callable[[Settings], float]) -> None:
        self.app = app
        self._most_seconds = most_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `ShuttingDown`, `DeadlineExceeded`, `Overloaded`, and the errors of `read_body`."""
        service: Service = scope["app"].state.service
        context = context_of(scope)
        seconds = seconds_of(Headers(scope=scope), self._most_seconds(service.settings))
        context.seconds, context.deadline = seconds, context.arrived + seconds
        gone = asyncio.Event()
        try:
            with service.admitted():
                async with asyncio.timeout_at(context.deadline) as lifetime:
                    with service.holding(context.share) as hold:
                        body = await read_body(Headers(scope=scope), receive, service.settings.max_body_bytes, hold)
                        context.body = body
                        await self._run(scope, body, receive, send, lifetime, gone)
        except TimeoutError:
            if not lifetime.expired():  # another timeout's
                raise
            raise ClientDisconnect if gone.is_set() else DeadlineExceeded(seconds) from None

    async def _run(
        self,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
        lifetime: asyncio.Timeout,
        gone: asyncio.Event,
    ) -> None:
        watch = asyncio.create_task(_watch(receive, lifetime, gone))

        async def send_at_leisure(message: Message) -> None:
            if _whole(message):  # the answer is complete: cancelling would save nothing
                watch.cancel()
                if lifetime.expired():  # only just now: a cancellation that is still due takes effect here
                    await asyncio.sleep(0)
                else:
                    lifetime.reschedule(None)
            await send(message)

        try:
            await self.app(scope, replay(body), send_at_leisure)
        finally:
            watch.cancel()


def _whole(message: Message) -> bool:
    """Whether the answer is complete: at its start if its length is known, else with its last part."""
    if message["type"] == "http.response.start":
        return "content-length" in Headers(raw=message["headers"])
    return not message.get("more_body", False)


async def _watch(receive: Receive, lifetime: asyncio.Timeout, gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not lifetime.expired():
        gone.set()
        lifetime.reschedule(asyncio.get_running_loop().time())


async def read_body(headers: Headers, receive: Receive, limit: int, hold: Callable[[int], None]) -> bytes:
    """The body; one declared as too large is refused unread, one that turns out too large as soon as it does. `hold` is
    called with the number of bytes of every part, and may raise.

    Raises `BodyTooLarge`, `BodyTooSlow` or `ClientDisconnect`.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLarge(limit, int(declared))
    body = bytearray()
    try:
        async with asyncio.timeout(PART_SECONDS) as pace:
            async for part in _parts(receive, pace):
                hold(len(part))
                body += part
                if len(body) > limit:
                    raise BodyTooLarge(limit)
    except TimeoutError:
        if not pace.expired():  # another timeout's
            raise
        raise BodyTooSlow(PART_BYTES, PART_SECONDS) from None
    return bytes(body)


async def _parts(receive: Receive, pace: asyncio.Timeout) -> AsyncIterator[bytes]:
    """The parts of a body; extends the timeout whenever enough of it has arrived."""
    more, due = True, PART_BYTES
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        due -= len(part)
        if due <= 0:
            due = PART_BYTES
            pace.reschedule(asyncio.get_running_loop().time() + PART_SECONDS)
        yield part
        more = message.get("more_body", False)


def replay(body: bytes) -> Receive:
    """An ASGI `receive` that returns the body once; further calls wait until the request ends."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await _never()

    return receive


async def _never() -> NoReturn:
    while True:
        await asyncio.Event().wait()


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
