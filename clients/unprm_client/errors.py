"""Every error that the clients raise.

All are `ClientError`s. Those that the server reports are `ServerError`s with a `code`: `RequestRefused` if the same
request will be refused again, `TryAgain` if it may succeed later.

A newer server may send codes that have no class here: they become `RequestRefused` or `TryAgain`.
"""

from collections.abc import Mapping
from typing import ClassVar

import httpx
from pydantic import ValidationError

from unprm.wire import FieldError, ProblemDetails


class ClientError(Exception):
    """Base of all errors of the clients."""


class ConnectionFailed(ClientError):
    """The server could not be reached, or the connection broke before its answer was read."""


class UnexpectedResponse(ClientError):
    """An answer outside the contract; `status` is its HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"status {status}: {detail}")
        self.status = status


class DeadlineExceeded(ClientError):
    """The call's time ran out: while it was sent, before a retry, or on the server."""

    def __init__(self, detail: str, request_id: str | None = None) -> None:
        super().__init__(detail)
        self.request_id = request_id


class ServerError(ClientError):
    """An error that the server returned.

    `status`: HTTP's, 0 if the client refused before sending anything. `code`: stable, for programs; `detail`: for
    people; `errors`: the offending fields with their JSON pointers; `retry_after`: seconds, if the server sent them.
    """

    code: ClassVar[str | None] = None

    def __init_subclass__(cls, code: str | None = None) -> None:
        """Enters a class under its code in `BY_CODE`."""
        cls.code = code
        if code is not None:
            BY_CODE[code] = cls

    def __init__(self, problem: ProblemDetails, retry_after: float | None = None) -> None:
        super().__init__(_message(problem))
        self.status = problem.status
        self.problem_code = problem.code
        self.detail = problem.detail
        self.request_id = problem.request_id
        self.errors: list[FieldError] = problem.errors
        self.retry_after = retry_after


BY_CODE: dict[str, type[ServerError]] = {}
"""The class of each code that has one."""


class RequestRefused(ServerError):
    """The request can't be answered as it stands."""


class TryAgain(ServerError):
    """The request is valid; the server can't answer it now."""


class MalformedJson(RequestRefused, code="malformed_json"):
    """The body is not JSON."""


class InvalidRequest(RequestRefused, code="invalid_request"):
    """The request does not fit the contract; `errors` says where."""


class TooManySolutions(RequestRefused, code="too_many_solutions"):
    """More solutions than the server accepts."""


class BlankSolution(RequestRefused, code="blank"):
    """A solution without text."""


class TooManySteps(RequestRefused, code="too_many_steps"):
    """A solution with more steps than the server accepts."""


class SolutionTooLong(RequestRefused, code="solution_too_long"):
    """A solution that does not fit the model's window."""


class NoVerdict(RequestRefused, code="no_verdict"):
    """A solution of which the server's judge did not judge all steps."""


class NoLogProbs(RequestRefused, code="no_logprobs"):
    """A solution without log-probabilities of its steps' tokens, by which the server's model scores."""


class UnknownModel(RequestRefused, code="unknown_model"):
    """The server has no model of this name."""


class NoAnswer(RequestRefused, code="no_answer"):
    """A vote in which no solution has an answer."""


class BodyTooLarge(RequestRefused, code="body_too_large"):
    """The request is larger than the server reads."""


class UnsupportedMediaType(RequestRefused, code="unsupported_media_type"):
    """The body is not declared as JSON."""


class NotFound(RequestRefused, code="not_found"):
    """There is nothing at this address."""


class MethodNotAllowed(RequestRefused, code="method_not_allowed"):
    """The address does not take this method."""


class Unauthorized(RequestRefused, code="unauthorized"):
    """The key is missing or wrong."""


class ForeignSite(RequestRefused, code="foreign_site"):
    """The server has no key, and is called by a name that may be anybody's."""


class UpstreamRefused(RequestRefused, code="upstream_refused"):
    """The model behind the gateway refused the request."""


class Overloaded(TryAgain, code="overloaded"):
    """Too much is waiting on the server; nothing of the request was run."""


class ModelUnavailable(TryAgain, code="model_unavailable"):
    """The model is not loaded yet, or failed."""


class ShuttingDown(TryAgain, code="shutting_down"):
    """The server is about to end."""


class UpstreamFailed(TryAgain, code="upstream_failed"):
    """The model behind the gateway did not answer properly."""


class InternalError(TryAgain, code="internal"):
    """Something went wrong on the server."""


def server_at(url: httpx.URL) -> str:
    """Which server an error is about; without a user's name and password."""
    return f"the server at {url.scheme}://{url.netloc.decode('ascii')}"


def of_response(status: int, headers: Mapping[str, str], body: bytes, url: httpx.URL) -> ClientError:
    """The error that a response from an address describes."""
    try:
        problem = ProblemDetails.model_validate_json(body, extra="ignore")
    except ValidationError:
        detail = f"the body is no problem details of unprm; is {server_at(url)} one of it?"
        return UnexpectedResponse(status, detail)
    if problem.code == "deadline_exceeded":
        return DeadlineExceeded(problem.detail, problem.request_id)
    fallback = TryAgain if status in (429, 503) else RequestRefused
    return BY_CODE.get(problem.code, fallback)(problem, _seconds(headers.get("retry-after")))


def _seconds(retry_after: str | None) -> float | None:
    """The header's number; its other form, a date, is never sent by the server."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None


def _message(problem: ProblemDetails) -> str:
    others = [error for error in problem.errors if error.pointer and error.detail not in problem.detail]
    where = "".join(f" [{error.pointer}: {error.detail}]" for error in others)
    return f"{problem.code}: {problem.detail}{where}"
