"""Errors as responses: RFC 9457 problem details, by one table, with what clients of the called API expect beside."""

import difflib
import json
import logging
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from unprm.errors import FieldError, InvalidRequest, UnprmError, UpstreamRefused
from unprm.validation_messages import MAX_ERRORS, field_errors, invalid, unknown
from unprm.votes.registry import VOTES
from unprm.wire import ProblemDetails

from .lease import lease_of

MEDIA_TYPE = "application/problem+json"
CALLER_DEADLINE = "caller_deadline"
"""Code in logs and metrics of a `deadline_exceeded` for which the caller gave too little time, or sent its body too
slowly: the server has not failed."""
CALLER_LEFT = "caller_left"
"""Code in logs and metrics of a request whose caller did not wait for its answer."""
UPSTREAM_SILENT = "upstream_silent"
"""Code in logs and metrics of a request that ran out of time, or that its caller gave up, before an upstream sent a
byte."""

logger = logging.getLogger(__name__)


class ErrorRow(NamedTuple):
    """The response to an error code; `retry_after`: seconds after which the same request may succeed."""

    status: int
    title: str
    retry_after: float | None = None


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
    "unknown_model": ErrorRow(422, "No model of this name is served"),
    "upstream_refused": ErrorRow(400, "The model behind the gateway refused the request"),
    "no_answer": ErrorRow(422, "No solution has an answer"),
    "overloaded": ErrorRow(429, "Too much work is waiting", retry_after=1),
    "quota_exceeded": ErrorRow(429, "The key's tokens are used up", retry_after=1),
    "upstream_busy": ErrorRow(429, "The model behind the gateway is busy", retry_after=1),
    "internal": ErrorRow(500, "Something went wrong on the server"),
    "upstream_failed": ErrorRow(502, "The model behind the gateway did not answer", retry_after=1),
    "model_unavailable": ErrorRow(503, "The model is not available", retry_after=5),
    "upstream_unavailable": ErrorRow(503, "The model behind the gateway is unavailable", retry_after=1),
    "shutting_down": ErrorRow(503, "The server is shutting down", retry_after=5),
    "deadline_exceeded": ErrorRow(504, "The request timed out"),
}

ANTHROPIC = "/v1/messages"
"""Path of Anthropic's API; others below `/v1` are of OpenAI's."""
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
_OPTIONS = {
    "/v1/": ("upstream_url", "this path needs a model to sample from: start the server with --upstream-url"),
    "/feedback": ("journal", "feedback goes to the journal, and there is none: start the server with --journal FILE"),
    "/admin/models": ("admin_key", "/admin/models needs a key of its own: start the server with --admin-key"),
}
"""Settings without which nothing is served at paths that begin so."""


_MOST_NAMES, _LONGEST = 16, 64
"""Names of a path, and its characters, that are compared with the paths that are served."""


def respond(error: Exception, scope: Scope) -> Response:
    """The response to any error of a request, whose lease notes the code. An error that is not in the table is
    answered as `internal` and logged."""
    lease, path = lease_of(scope), scope["path"]
    if isinstance(error, RequestValidationError):
        error = invalid(field_errors(error.errors(), error.body))
    code = lease.code = code_of(error)
    row, upstream_fields = TABLE[code], dict[str, str]()
    if isinstance(error, UpstreamRefused):
        row, upstream_fields = row._replace(status=error.status or row.status), dict(error.fields)
    detail, retry_after = row.title, row.retry_after
    fields, headers = list[FieldError](), dict[str, str]()
    if code == "internal":
        logger.error("request %s failed", lease.request_id, exc_info=error)
    elif isinstance(error, HTTPException):
        detail = _detail(error, scope) or detail
        headers |= error.headers or {}
    elif isinstance(error, UnprmError):
        detail, retry_after = str(error), error.retry_after or retry_after
        if isinstance(error, InvalidRequest):
            fields = list(error.errors) or [FieldError(error.pointer, detail)] * bool(error.pointer)
    if code == "deadline_exceeded" and lease.unheard:
        lease.code = UPSTREAM_SILENT
    elif code == "deadline_exceeded" and (isinstance(error, HTTPException) or lease.hurried):
        lease.code = CALLER_DEADLINE  # the former: the body was too slow
    if retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    body = details_of(code, detail, lease.request_id, fields[:MAX_ERRORS]).model_dump(mode="json")
    body["status"] = row.status
    if code == "not_found" and (meant := _meant(scope)) in detail:
        path = meant  # so in the form that its client reads
    if f"{path}/".startswith(f"{ANTHROPIC}/"):
        body |= {"type": "error", "error": {"type": _ANTHROPIC.get(row.status, "api_error"), "message": detail}}
    elif path.startswith("/v1/"):
        param = fields[0].pointer if fields else None
        body["error"] = {"message": detail, "type": code, "param": param, "code": code} | upstream_fields
    return Response(json.dumps(body), row.status, headers, MEDIA_TYPE)


def _detail(error: HTTPException, scope: Scope) -> str | None:
    """The sentence of an error, if it has one; for a path or a method that is not served, with what is."""
    path, app = scope["path"], scope["app"]
    if error.status_code == 405:
        methods = [getattr(route, "methods", ()) for route in app.routes if route.matches(scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({method for each in methods for method in each}))
        error.headers = {"Allow": allowed}
        return f"expected {allowed}, got {scope['method']}"
    if error.detail != HTTPStatus(error.status_code).phrase:  # which is what Starlette says of its own
        return error.detail
    if error.status_code != 404:
        return None
    if path.startswith("/vote/"):
        return f"the name after /vote/ {unknown(path.removeprefix('/vote/'), [*VOTES, 'compare'], 'a vote')}"
    settings = app.state.service.settings
    for start, (name, hint) in _OPTIONS.items():
        if path.startswith(start) and not getattr(settings, name):
            return hint
    if (meant := _meant(scope)) != path:
        return f"expected {meant}: the base URL of OpenAI's clients ends in /v1, that of Anthropic's does not"
    paths = sorted({route.path for route in _routes(scope, below_v1=path.startswith("/v1/"))})
    if path.startswith("/v1/"):
        return f"nothing is served at this path; expected {', '.join(paths)}"
    near = " or ".join(difflib.get_close_matches(path[:_LONGEST], paths, 2, 0.7))
    return "nothing is served at this path; /docs lists what is" + f" (did you mean {near}?)" * bool(near)


def _routes(scope: Scope, *, below_v1: bool) -> list[Route]:
    routes = [route for route in scope["app"].routes if isinstance(route, Route)]
    return [route for route in routes if route.path.startswith("/v1/") == below_v1]


def _meant(scope: Scope) -> str:
    """The path, or the one below `/v1` that it ends in, if only that is served: of a client whose base URL lacks `/v1`,
    has it twice, or is Azure's."""
    path, below = scope["path"], _routes(scope, below_v1=True)
    names = path.strip("/").split("/")[-_MOST_NAMES:]
    meant = ("/v1/" + "/".join(names[start:]) for start in range(len(names)))
    return next(
        (each for each in meant if any(r.matches({**scope, "path": each})[0] != Match.NONE for r in below)), path
    )


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
    if isinstance(error, HTTPException):
        return next((code for code, row in TABLE.items() if row.status == error.status_code), "internal")
    return error.code if isinstance(error, UnprmError) and error.code in TABLE else "internal"
