"""Maps errors to responses by one table: RFC 9457 problem details."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from unprm.errors import InvalidRequest, Overloaded, UnprmError
from unprm.fields import field_errors, summary
from unprm.votes import registry
from unprm.wire import FieldError, ProblemDetails

MEDIA_TYPE = "application/problem+json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """The response to an error code; `retry_after`: seconds after which the same request may succeed."""

    status: int
    title: str
    retry_after: int | None = None


TABLE = {
    "malformed_json": Row(400, "The body is not JSON"),
    "unauthorized": Row(401, "The API key is missing or wrong"),
    "foreign_site": Row(403, "The request comes from another site"),
    "not_found": Row(404, "Nothing is served at this address"),
    "method_not_allowed": Row(405, "The address does not accept this method"),
    "body_too_large": Row(413, "The body is too large"),
    "unsupported_media_type": Row(415, "The body is not declared as JSON"),
    "invalid_request": Row(422, "The request is invalid"),
    "too_many_solutions": Row(422, "Too many solutions"),
    "blank": Row(422, "A solution is blank"),
    "too_many_steps": Row(422, "Too many steps in a solution"),
    "solution_too_long": Row(422, "A solution is too long for the model"),
    "no_verdict": Row(422, "The judge gave no verdict on a step"),
    "unknown_model": Row(422, "No model of this name is served"),
    "upstream_refused": Row(400, "The model behind the gateway refused the request"),
    "no_answer": Row(422, "No solution has an answer"),
    "overloaded": Row(429, "Too much work is waiting", retry_after=1),
    "internal": Row(500, "Something went wrong on the server"),
    "upstream_failed": Row(502, "The model behind the gateway did not answer", retry_after=1),
    "model_unavailable": Row(503, "The model is not available", retry_after=5),
    "shutting_down": Row(503, "The server is shutting down", retry_after=5),
    "deadline_exceeded": Row(504, "The request timed out"),
}


class MalformedJson(UnprmError):
    """The body can't be parsed."""

    code = "malformed_json"


class Unauthorized(UnprmError):
    """The key is missing or not one of the server's."""

    code = "unauthorized"

    def __init__(self) -> None:
        super().__init__("send a key of the server as `Authorization: Bearer KEY`")


class ForeignSite(UnprmError):
    """A browser may have been led here by a site that has nothing to do with the server, which asks for no key."""

    code = "foreign_site"

    def __init__(self) -> None:
        super().__init__(
            "without a key, the server answers only under its address or a local name, and pages from there: set a "
            "key (--api-key) to use another name"
        )


class UnknownVote(UnprmError):
    """No vote has this address."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__(f"there is no such vote; expected one of {', '.join(registry.VOTES)}, or compare")


class BodyTooLarge(UnprmError):
    """The body is larger than the server reads; `sent` is None if its size was not declared."""

    code = "body_too_large"

    def __init__(self, limit: int, sent: int | None = None) -> None:
        super().__init__(f"{'more' if sent is None else sent} bytes were sent, the limit is {limit}")


class BodyTooSlow(UnprmError):
    """The body arrives more slowly than the server allows."""

    code = "deadline_exceeded"

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(f"the body arrives too slowly: {count} bytes, or the rest, must arrive within {seconds:g} s")


class UnsupportedMediaType(UnprmError):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"

    def __init__(self) -> None:
        super().__init__("send the body as `Content-Type: application/json`")


def problem(error: Exception, request_id: str, gateway: bool = False) -> Response:
    """The response to any error. An error that is not in the table is answered as `internal` and logged.

    `gateway`: adds the `error` member that clients of OpenAI's API expect.
    """
    code = code_of(error)
    row = TABLE[code]
    if code == "internal":
        logger.error("request %s failed", request_id, exc_info=error)
    details = details_of(code, _detail(error, code), request_id, _fields(error))
    body = details.model_dump_json()
    if gateway:
        pointer = details.errors[0].pointer if details.errors else None
        openai_error = {"message": details.detail, "type": code, "param": pointer, "code": code}
        body = json.dumps(details.model_dump(mode="json") | {"error": openai_error})
    return Response(body, row.status, _headers(error, row), MEDIA_TYPE)


def event(data: bytes | memoryview, name: str = "") -> bytes:
    """A server-sent event; `data` has no line breaks. Errors are named `error`, as Anthropic's clients expect."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + bytes(data) + b"\n\n"


def details_of(code: str, detail: str, request_id: str, errors: Sequence[FieldError] = ()) -> ProblemDetails:
    """The body of the response to an error code."""
    row = TABLE[code]
    return ProblemDetails(
        type=f"urn:unprm:error:{code}",
        title=row.title,
        status=row.status,
        detail=detail,
        code=code,
        request_id=request_id,
        errors=list(errors),
    )


def code_of(error: Exception) -> str:
    """The error's code, a key of the table."""
    if isinstance(error, RequestValidationError):
        return "invalid_request"
    if isinstance(error, HTTPException):
        return {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "internal")
    if isinstance(error, UnprmError) and error.code in TABLE:
        return error.code
    return "internal"


def _detail(error: Exception, code: str) -> str:
    if isinstance(error, UnprmError) and code != "internal":
        return str(error)
    if isinstance(error, RequestValidationError):
        return summary(_fields(error), len(error.errors()))
    return TABLE[code].title


def _fields(error: Exception) -> list[FieldError]:
    if isinstance(error, RequestValidationError):
        return field_errors(error.errors())
    if isinstance(error, InvalidRequest) and error.pointer:
        return [FieldError(pointer=error.pointer, detail=str(error))]
    return []


def _headers(error: Exception, row: Row) -> dict[str, str]:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    elif row.retry_after is not None:
        headers["Retry-After"] = str(row.retry_after)
    return headers
