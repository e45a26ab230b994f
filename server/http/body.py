"""Request bodies: read within limits of size and time, parsed, and bounded so that validation stays cheap."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from unprm import steps as step_text
from unprm.errors import InvalidRequest, TooManySolutions

from .errors import BodyTooLarge, BodyTooSlow, MalformedJson, UnsupportedMediaType

PART_BYTES, PART_SECONDS = 65_536, 5.0
"""At least this many bytes of a body, or the rest of it, must arrive within each period of this many seconds."""
_MAX_FIELDS = 64
"""Maximum fields in an object: far more than any object needs, few enough that reporting unknown ones stays fast."""


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
                if len(body) + len(part) > limit:
                    raise BodyTooLarge(limit)
                hold(len(part))
                body += part
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


def check_media_type(headers: Headers) -> None:
    """Raises `UnsupportedMediaType` unless the body is declared as JSON."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    # a page of any site can post text/plain to a server on its reader's machine, but not application/json
    if media_type != "application/json":
        raise UnsupportedMediaType


def validated(
    validate: Callable[..., tuple[Any, Sequence[Any]]], body: bytes, max_solutions: int, max_steps: int
) -> Any:
    """The body's value by the `validate` of a route's field. Raises as `parse`, and `RequestValidationError`."""
    sent = parse(body, max_solutions, max_steps)
    if sent is None:  # as FastAPI reports it
        missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
        raise RequestValidationError([missing])
    value, errors = validate(sent, loc=("body",))
    if errors:
        raise RequestValidationError(errors)
    return value


def parse(body: bytes, max_solutions: int, max_steps: int) -> object:
    """The JSON value, at most 200 levels deep. If a solution has too many steps, all beyond `max_steps` are joined into
    one.

    Raises `MalformedJson` (also for encodings other than UTF-8 and for lone surrogates), `TooManySolutions`, and
    `InvalidRequest` for an object with far too many fields.
    """
    try:
        value = from_json(body)
    except ValueError as error:
        raise MalformedJson(f"the body is not JSON in UTF-8: {error}") from None
    if not isinstance(value, dict):
        return value
    _check_fields(value, "")
    if isinstance(solutions := value.get("solutions"), list):
        if len(solutions) > max_solutions:
            raise TooManySolutions(len(solutions), max_solutions)
        for index, solution in enumerate(solutions):
            _bound(solution, f"/solutions/{index}", max_steps)
    if isinstance(trajectories := value.get("trajectories"), list) and len(trajectories) > max_solutions:
        raise TooManySolutions(len(trajectories), max_solutions)
    _bound(value.get("solution"), "/solution", max_steps)
    return value


def _bound(solution: object, pointer: str, max_steps: int) -> None:
    """Joins the steps beyond the maximum into one, and drops the step scores. The solution still has too many steps,
    but the answer in its last one is kept; validating a million steps one by one would take long."""
    if isinstance(solution, dict):
        _check_fields(solution, pointer)
    steps = solution.get("steps") if isinstance(solution, dict) else solution
    if isinstance(steps, list) and len(steps) > max_steps and all(isinstance(step, str) for step in steps[max_steps:]):
        steps[max_steps:] = [step_text.join(steps[max_steps:])]
        if isinstance(solution, dict):
            solution["step_scores"] = None


def _check_fields(value: dict[str, Any], pointer: str) -> None:
    if len(value) > _MAX_FIELDS:
        raise InvalidRequest(f"an object has {len(value)} fields, the limit is {_MAX_FIELDS}", pointer)
