"""Routes for work: bodies are read within limits of size and time, parsed, and bounded so that validation stays
cheap."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from functools import partial
from inspect import Parameter, Signature, signature
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unprm import steps as step_text
from unprm.errors import FieldError, InvalidRequest, TooManySolutions, UnprmError
from unprm.validation_messages import field_errors, invalid
from unprm.wire import MAX_FIELDS

from ..lease import Lease, lease_of
from ..problem_details import event, respond
from ..service import Service
from ..settings import Settings

TIMEOUT_HEADER = "X-Request-Timeout"
PART_BYTES, PART_SECONDS = 65_536, 5.0
"""At least this many bytes of a body, or the rest of it, must arrive within each period of this many seconds."""
OBJECT_BYTES, VALUE_BYTES = 1280, 64
"""Memory that an object of a body takes once it is parsed and validated, and any other value beside its text."""
PARSED = 12
"""The values of a body may take as much memory as this many bodies of the maximum size."""
_TO_LATIN, _TO_16_BITS, _CONTINUED = (bytes(range(*ends)) for ends in ((0xC4,), (0xF0,), (0x80, 0xC0)))
"""Bytes that in UTF-8 are of characters up to U+00FF; up to U+FFFF; or that continue a character."""
SENT_BYTES = 65_536
"""Bytes of an answer that are handed to the connection at once; they are then out of the caller's share."""


class WorkRoute(APIRoute):
    """A route that may take long: limited in time, and cancelled, with its work in the model's queue, when its caller
    disconnects. Its endpoint returns a `Response`, or what JSON can hold, models included.

    FastAPI describes and calls the endpoint; but what has a caller's size is read and written in threads, by turns:
    when it calls an endpoint with a body, that is one of its dependencies, and the answer is written already.
    """

    seconds: Callable[[Settings], float] = attrgetter("max_request_seconds")
    """Maximum time for a request."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = partial(self._within_bounds, self.app)

    async def _within_bounds(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body, then answers. Raises `ShuttingDown`, `DeadlineExceeded`, `Overloaded`, and the errors of
        `read_body`."""
        settings: Settings = scope["app"].state.service.settings
        headers, lease = Headers(scope=scope), lease_of(scope)
        limit = self.seconds(settings)
        try:
            async with lease.admitted(seconds_of(headers, limit), limit):
                lease.body = await read_body(headers, receive, settings.max_body_bytes, lease.memory.take)
                lease.size = len(lease.body)
                await answer(app, scope, receive, send, lease)
        except UnprmError as error:
            if lease.media_type is None:
                raise
            body = respond(error, scope).body
            # as with OpenAI, a stream of events ends with one of the error; any other answer is left incomplete, and
            # its connection closed
            if lease.media_type.startswith("text/event-stream"):
                await send({"type": "http.response.body", "body": event(body, "error")})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What makes the response to a request whose body has arrived: the handler of a route without a body, whose
        endpoint has this one's body as a dependency."""
        if self.body_field is None:
            return super().get_route_handler()
        name, parameters = self.body_field.name, signature(self.endpoint).parameters
        assert name in parameters, "one parameter is the whole body"

        async def written(http: Request, **arguments: Any) -> Response:
            lease = lease_of(http.scope)
            response = await self.endpoint(**arguments)
            if not isinstance(response, Response):
                content = await lease.read(partial(to_json, response, inf_nan_mode="null"))
                response = Response(content, self.status_code or 200, media_type="application/json")
            if not isinstance(response, StreamingResponse):
                lease.memory.take(len(response.body))
            return response

        given = [Parameter("http", Parameter.KEYWORD_ONLY, annotation=Request)]
        for each in parameters.values():
            kind = Annotated[Any, Depends(self._body)] if each.name == name else each.annotation
            given.append(each.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind))
        written.__signature__ = Signature(given)  # type: ignore[attr-defined]
        return APIRoute(
            self.path,
            written,
            response_model=None,
            dependencies=self.dependencies,
            dependency_overrides_provider=self.dependency_overrides_provider,
        ).get_route_handler()

    async def _body(self, request: Request) -> Any:
        """The validated body. Raises `HTTPException` unless it is declared as JSON and its values have room,
        `Overloaded`, and the errors of `_validated`."""
        service: Service = request.app.state.service
        lease = lease_of(request.scope)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        # a page of any site can post text/plain to a server on its reader's machine, but not application/json
        if media_type != "application/json":
            raise HTTPException(415, "send the body as `Content-Type: application/json`")
        size, limit = await lease.read(partial(parsed_size, lease.body)), service.settings.max_body_bytes
        if size > PARSED * limit:
            raise HTTPException(413, f"its values take {size} bytes of memory, the limit is {PARSED * limit}")
        lease.memory.take(size)
        return await lease.read(partial(self._validated, lease.body, service.settings))

    def _validated(self, body: bytes, settings: Settings) -> Any:
        """The body's value. Raises as `parse`, and `InvalidRequest`."""
        assert self.body_field is not None, "FastAPI handles the others"
        sent = parse(body, settings.max_solutions, settings.max_steps)
        if sent is None:  # to FastAPI, no body
            raise invalid([FieldError("", "expected an object, got null")])
        value, errors = self.body_field.validate(sent, loc=("body",))
        if errors:
            form: Any = self.body_field.field_info.annotation
            raise invalid(field_errors(errors, sent, form))
        return value


async def answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send, lease: Lease) -> None:
    """Runs an app that needs no body, and cancels it when the caller disconnects before the answer is complete.

    Once it is complete, cancelling would save nothing: it is sent in parts, each when the one before is nearly written,
    until the protocol hangs up on a caller that reads none of them.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        lease.end(ClientDisconnect())

    async def send_in_parts(message: Message) -> None:
        whole = not message.get("more_body", False)  # the answer is complete with its last part,
        if message["type"] == "http.response.start":  # or at its start if its length is known
            whole = "content-length" in Headers(raw=message["headers"])
        if whole:
            watching.cancel()
            if lease.over:  # only just now: a cancellation that is still due takes effect here
                await asyncio.sleep(0)
            else:
                lease.finish()
        body = memoryview(message.get("body", b""))
        last = max(0, len(body) - 1) // SENT_BYTES * SENT_BYTES
        for start in range(0, last, SENT_BYTES):
            await send({**message, "body": bytes(body[start : start + SENT_BYTES]), "more_body": True})
        await send({**message, "body": bytes(body[last:])} if last else message)

    watching = asyncio.create_task(watch())
    try:
        # all that will come is that the caller disconnects, which is watched for here
        await app(scope, asyncio.Queue[Message]().get, send_in_parts)
    finally:
        watching.cancel()


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


async def read_body(headers: Headers, receive: Receive, limit: int, hold: Callable[[int], None]) -> bytes:
    """The body; one declared as too large is refused unread, one that turns out too large as soon as it does. `hold` is
    called with the number of bytes of every part, and may raise.

    Raises `ClientDisconnect`, and `HTTPException` for a body that is too large, or too slow.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise HTTPException(413, f"{int(declared)} bytes were sent, the limit is {limit}")
    body, more, due = bytearray(), True, PART_BYTES
    try:
        async with asyncio.timeout(PART_SECONDS) as pace:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part: bytes = message.get("body", b"")
                due -= len(part)
                if due <= 0:
                    due = PART_BYTES
                    pace.reschedule(asyncio.get_running_loop().time() + PART_SECONDS)
                if len(body) + len(part) > limit:
                    raise HTTPException(413, f"more bytes were sent, the limit is {limit}")
                hold(len(part))
                body += part
                more = message.get("more_body", False)
    except TimeoutError:
        if not pace.expired():  # another timeout's
            raise
        pace_needed = f"{PART_BYTES} bytes, or the rest, must arrive within {PART_SECONDS:g} s"
        raise HTTPException(504, f"the body arrives too slowly: {pace_needed}") from None
    return bytes(body)


def parsed_size(body: bytes) -> int:
    """Bytes of memory that the values of a body in JSON take, beyond those of the body: an estimate from its brackets,
    braces and commas, which are counted outside strings, and from the width of its characters."""
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")  # without what is escaped, each quote begins or ends a string
    objects = others = inside = 0
    for start in range(0, len(bare), PART_BYTES):
        pieces = bare[start : start + PART_BYTES].split(b'"')
        outside = b"".join(pieces[inside::2])
        objects += outside.count(b"{")
        others += outside.count(b"[") + outside.count(b",")
        inside ^= len(pieces) % 2 == 0
    return OBJECT_BYTES * objects + VALUE_BYTES * others + _text_size(body)


def _text_size(body: bytes) -> int:
    """Bytes of memory that the characters of a body take beyond its own: none for ASCII. Python keeps all of a text as
    wide as its widest (PEP 393), so that one emoji makes a text four times as large, and pydantic its UTF-8 beside."""
    escaped = b"\\u" in body
    if body.isascii() and not escaped:
        return 0
    beyond_latin = body.translate(None, _TO_LATIN)
    width = 2 if beyond_latin or escaped else 1
    if beyond_latin.translate(None, _TO_16_BITS) or b"\\ud" in body or b"\\uD" in body:
        width = 4
    return width * len(body.translate(None, _CONTINUED))


def parse(body: bytes, max_solutions: int, max_steps: int) -> object:
    """The JSON value, at most 200 levels deep. Of a solution with too many steps, those beyond `max_steps` are joined
    into one, and the step scores are dropped.

    Raises `HTTPException` for what is not JSON (also for encodings other than UTF-8 and for lone surrogates),
    `TooManySolutions`, and `InvalidRequest` for an object with far too many fields.
    """
    try:
        value = from_json(body)
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_FIELDS:
        raise InvalidRequest(f"an object has {len(value)} fields, the limit is {MAX_FIELDS}")
    candidates = [value.get("solution")]
    for name in ("solutions", "trajectories"):
        if isinstance(sent := value.get(name), list):
            if len(sent) > max_solutions:
                raise TooManySolutions(len(sent), max_solutions)
            candidates += sent
    for candidate in candidates:
        steps = candidate.get("steps") if isinstance(candidate, dict) else candidate
        if not isinstance(steps, list) or len(steps) <= max_steps:
            continue
        # there are still too many, but the answer in the last is kept; validating a million would take long
        if all(isinstance(step, str) for step in steps[max_steps:]):
            steps[max_steps:] = [step_text.join(steps[max_steps:])]
            if isinstance(candidate, dict):
                candidate["step_scores"] = None
    return value
