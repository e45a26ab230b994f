"""Maps errors to responses by one table: RFC 9457 problem details."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from unprm.errors import FieldError, InvalidRequest, UnprmError
from unprm.fields import MAX_ERRORS, field_errors, summary
from unprm.wire import ProblemDetails

MEDIA_TYPE = "application/problem+json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The response to an error code; `retry_after`: seconds after which the same request may succeed."""

    status: int
    title: str
    retry_after: int | None = None


TABLE = {
    "malformed_json": ErrorRow(400, "The body is not JSON"),
    "unauthorized": ErrorRow(401, "The API key is missing or wrong"),
    "foreign_site": ErrorRow(403, "The request comes from another site"),
    "not_found": ErrorRow(404, "Nothing is served at this path"),
    "method_not_allowed": ErrorRow(405, "The path does not accept this method"),
    "body_too_large": ErrorRow(413, "The body is too large"),
    "unsupported_media_type": ErrorRow(415, "The body is not declared as JSON"),
    "invalid_request": ErrorRow(422, "The request is invalid"),
    "too_many_solutions": ErrorRow(422, "Too many solutions"),
    "blank": ErrorRow(422, "A solution is blank"),
    "too_many_steps": ErrorRow(422, "Too many steps in a solution"),
    "solution_too_long": ErrorRow(422, "A solution is too long for the model"),
    "no_verdict": ErrorRow(422, "The judge gave no verdict on a step"),
    "no_logprobs": ErrorRow(422, "The model scores by log-probabilities, which a candidate lacks"),
    "unknown_model": ErrorRow(422, "No model of this name is served"),
    "upstream_refused": ErrorRow(400, "The model behind the gateway refused the request"),
    "no_answer": ErrorRow(422, "No solution has an answer"),
    "overloaded": ErrorRow(429, "Too much work is waiting", retry_after=1),
    "internal": ErrorRow(500, "Something went wrong on the server"),
    "upstream_failed": ErrorRow(502, "The model behind the gateway did not answer", retry_after=1),
    "model_unavailable": ErrorRow(503, "The model is not available", retry_after=5),
    "shutting_down": ErrorRow(503, "The server is shutting down", retry_after=5),
    "deadline_exceeded": ErrorRow(504, "The request timed out"),
}


Dialect = Literal["unprm", "openai", "anthropic"]
"""Whose API an endpoint belongs to. OpenAI's clients expect a member `error`, Anthropic's also their own `type`."""
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's types of errors by their statuses; `api_error` for all others."""


def problem(error: Exception, request_id: str, dialect: Dialect = "unprm") -> Response:
    """The response to any error. An error that is not in the table is answered as `internal` and logged."""
    code = code_of(error)
    row = TABLE[code]
    detail, fields, headers = row.title, list[FieldError](), dict[str, str]()
    if row.retry_after is not None:
        headers["Retry-After"] = str(row.retry_after)
    if code == "internal":
        logger.error("request %s failed", request_id, exc_info=error)
    elif isinstance(error, RequestValidationError):
        fields = field_errors(error.errors(), error.body)
        detail = summary(fields)
    elif isinstance(error, HTTPException):
        headers |= error.headers or {}
        if error.detail != HTTPStatus(error.status_code).phrase:  # which is what Starlette says of its own
            detail = error.detail
    else:
        detail = str(error)
        if isinstance(error, InvalidRequest):
            fields = list(error.errors) or [FieldError(error.pointer, detail)] * bool(error.pointer)
        if isinstance(error, UnprmError) and error.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    details = details_of(code, detail, request_id, fields[:MAX_ERRORS])
    body = details.model_dump(mode="json")
    if dialect == "openai":
        param = fields[0].pointer if fields else None
        body["error"] = {"message": detail, "type": code, "param": param, "code": code}
    elif dialect == "anthropic":
        kind = _ANTHROPIC.get(row.status, "api_error")
        body |= {"type": "error", "error": {"type": kind, "message": detail}}
    return Response(json.dumps(body), row.status, headers, MEDIA_TYPE)


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
    """The error's code, a key of the table; of an `HTTPException` the first with its status."""
    if isinstance(error, RequestValidationError):
        return "invalid_request"
    if isinstance(error, HTTPException):
        return next((code for code, row in TABLE.items() if row.status == error.status_code), "internal")
    if isinstance(error, UnprmError) and error.code in TABLE:
        return error.code
    return "internal"
