"""Request bodies: JSON, bounded before validation so that validation stays cheap."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json

from server.http.context import context_of
from server.http.errors import MalformedJson, UnsupportedMediaType
from server.http.lifetime import Lifetime
from server.service import Service
from server.settings import Settings
from unprm import steps as step_text
from unprm.errors import InvalidRequest, TooManySolutions

_MOST_FIELDS = 64
"""Most fields in an object: far more than any object needs, few enough that reporting unknown ones stays fast."""


class WorkRoute(APIRoute):
    """A route that may take long: limited in body size and time, cancelled when its caller disconnects. A body must be
    JSON."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app = Lifetime(self.app, self.seconds)

    @staticmethod
    def seconds(settings: Settings) -> float:
        """Maximum time for a request."""
        return settings.max_request_seconds

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """FastAPI's handler, given JSON that was parsed and bounded here."""
        handler = super().get_route_handler()
        field = self.body_field
        if field is None:
            return handler

        async def handle(request: Request) -> Response:
            service: Service = request.app.state.service
            validated = partial(_validated, field.validate, await _json_body(request), service.settings)
            value = await service.read(context_of(request.scope), validated)
            return await handler(_JsonRequest(request.scope, value))

        return handle


class _JsonRequest(Request):
    """A request whose `json()` is the body, already validated, which FastAPI accepts unchanged."""

    def __init__(self, scope: Any, value: object) -> None:
        super().__init__(scope)
        self._value = value

    async def body(self) -> bytes:
        return b"(parsed)"

    async def json(self) -> object:
        return self._value


async def _json_body(request: Request) -> bytes:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # a page of any site can post text/plain to a server on its reader's machine, but not application/json
    if media_type != "application/json":
        raise UnsupportedMediaType
    return await request.body()


def _validated(validate: Callable[..., tuple[object, Sequence[Any]]], body: bytes, settings: Settings) -> object:
    """The validated body; None for null, which FastAPI itself reports. Raises as `parse`, and
    `RequestValidationError`."""
    sent = parse(body, settings.max_solutions, settings.max_steps)
    if sent is None:
        return None
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
    _check_fields(value, "")
    if isinstance(value, dict) and isinstance(solutions := value.get("solutions"), list):
        if len(solutions) > max_solutions:
            raise TooManySolutions(len(solutions), max_solutions)
        for index, solution in enumerate(solutions):
            _check_fields(solution, f"/solutions/{index}")
            _bound_steps(solution, max_steps)
    if isinstance(value, dict):
        _check_fields(value.get("solution"), "/solution")
        _bound_steps(value.get("solution"), max_steps)
    return value


def _check_fields(value: object, pointer: str) -> None:
    if isinstance(value, dict) and len(value) > _MOST_FIELDS:
        raise InvalidRequest(f"an object has {len(value)} fields, at most {_MOST_FIELDS} are read", pointer)


def _bound_steps(solution: object, most: int) -> None:
    """Joins the steps beyond the maximum into one, and drops the step scores. The solution still has too many steps,
    but the answer in its last one is kept; validating a million steps one by one would take long."""
    steps = solution.get("steps") if isinstance(solution, dict) else solution
    if isinstance(steps, list) and len(steps) > most and all(isinstance(step, str) for step in steps[most:]):
        steps[most:] = [step_text.join(steps[most:])]
        if isinstance(solution, dict):
            solution["step_scores"] = None
