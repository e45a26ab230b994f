"""The errors of `unprm.errors`, and those of HTTP, each by its `code`; unknown codes are `RequestRefused` or
`TryAgain`."""

from collections.abc import Mapping, Sequence

import httpx
from pydantic import ValidationError

from unprm.errors import *
from unprm.errors import FieldError, InvalidRequest, RequestRefused, TryAgain, UnprmError
from unprm.retries import retry_after
from unprm.wire import ProblemDetails

ClientError = UnprmError
"""Base of all errors of the clients."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or the connection broke before its answer was read."""


class UnexpectedResponse(ClientError):
    """An answer outside the contract; `status` is its HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"status {status}: {detail}")
        self.status = status


class MalformedJson(RequestRefused):
    """The body is not JSON."""

    code = "malformed_json"


class BodyTooLarge(RequestRefused):
    """The request is larger than the server reads."""

    code = "body_too_large"


class UnsupportedMediaType(RequestRefused):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"


class NotFound(RequestRefused):
    """The endpoint does not exist."""

    code = "not_found"


class MethodNotAllowed(RequestRefused):
    """The endpoint does not accept this method."""

    code = "method_not_allowed"


class Unauthorized(RequestRefused):
    """The key is missing or wrong."""

    code = "unauthorized"


class ForeignSite(RequestRefused):
    """The server has no key, and is called by a name that may be anybody's."""

    code = "foreign_site"


class InternalError(TryAgain):
    """Something went wrong on the server."""

    code = "internal"


BY_CODE: dict[str, type[UnprmError]] = {
    kind.code: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, UnprmError) and vars(kind).get("code")
}
"""The class of each code that has one."""


def server_at(url: httpx.URL) -> str:
    """Which server an error is about; without a user's name and password."""
    return f"the server at {url.scheme}://{url.netloc.decode('ascii')}"


def of_response(status: int, headers: Mapping[str, str], body: bytes, url: httpx.URL) -> ClientError:
    try:
        problem = ProblemDetails.model_validate_json(body, extra="ignore")
    except ValidationError:
        detail = f"the body is not an error of unprm; is {server_at(url)} an unprm server?"
        return UnexpectedResponse(status, detail)
    kind = BY_CODE.get(problem.code, TryAgain if status in (429, 503) else RequestRefused)
    error = make_error(kind, problem.code, problem.detail, problem.errors)
    error.code, error.status, error.request_id = problem.code, problem.status, problem.request_id
    error.retry_after = retry_after(headers)
    return error


def make_error(kind: type[UnprmError], code: str, detail: str, found: Sequence[FieldError] = ()) -> UnprmError:
    """The error of this class in words for people, with the offending fields."""
    others = [error for error in found if error.pointer and error.detail not in detail]
    error = kind.saying(f"{code}: {detail}" + "".join(f" [{error.pointer}: {error.detail}]" for error in others))
    error.errors = found
    if isinstance(error, InvalidRequest) and found:
        error.pointer = found[0].pointer
    return error
