"""What both clients share, without input or output: requests, results, time limits, retries, and the order of calls."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import httpx
from pydantic import BaseModel, HttpUrl, TypeAdapter, ValidationError

from unprm.affinity import HEADER, question_hash
from unprm.errors import FieldError, InvalidRequest, UnprmError
from unprm.retries import Attempts
from unprm.validation_messages import summary, unknown, validation_errors
from unprm.votes.registry import VOTES
from unprm.wire import (
    VOTE_REQUESTS,
    Candidates,
    CompareRequest,
    CompareResponse,
    DefaultVoteRequest,
    FeedbackRequest,
    FeedbackResponse,
    GradeRequest,
    GradeResponse,
    ModelResponse,
    ScoreRequest,
    ScoreResponse,
    SolutionIn,
    VoteResponse,
    with_scores,
)
from unprm_client import errors

URL = "http://127.0.0.1:8000"
_URL = TypeAdapter(HttpUrl)
SECONDS = 60.0
ATTEMPTS = 5
_GRACE = 1.0
"""Seconds to wait after the deadline for the server's answer that it has passed."""
_AHEAD = 4
"""Maximum calls submitted but not yet returned to the caller, as a multiple of `concurrency`."""
AnySolution = str | Sequence[str] | SolutionIn | Mapping[str, Any]
"""Free text, steps, or the fields of `SolutionIn`."""
Fields = Mapping[str, Any]
Result = TypeVar("Result", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request, and the type of its result. `seconds`: the call's time limit; None: the client's."""

    method: str
    path: str
    result: type[Result]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None


Operation = Callable[[Fields], Call[Result]]
"""Makes a call of a request's fields, and of `timeout`. Raises `InvalidRequest`, the same error as from the server."""


def model(fields: Fields) -> Call[ModelResponse]:
    name = fields["name"]
    return Call("GET", "/model" if name is None else f"/model?name={name}", ModelResponse)


def vote(fields: Fields) -> Call[VoteResponse]:
    sent = dict(fields)
    strategy, step_scores = sent.pop("strategy", None), sent.pop("step_scores", None)
    if step_scores is not None:
        try:
            sent["solutions"] = with_scores(sent.get("solutions", ()), step_scores)
        except ValueError as error:
            raise _invalid(str(error)) from None
    if strategy is None:
        return _build("/vote", DefaultVoteRequest, VoteResponse, sent)
    if strategy not in [*VOTES]:  # a list, where arguments are in another order, can't be looked up
        raise _invalid(f"{strategy!r} {unknown(strategy, VOTES, 'a vote')}")
    return _build(f"/vote/{strategy}", VOTE_REQUESTS[strategy], VoteResponse, sent)


def _build(path: str, form: type[BaseModel], result: type[Result], fields: Fields) -> Call[Result]:
    sent = dict(fields)
    seconds, problem = sent.pop("timeout", None), sent.get("problem")
    if problem is None:
        sent.pop("problem", None)
    if "trajectories" in sent and not sent.get("solutions"):
        sent.pop("solutions", None)
    try:
        request = form.model_validate(sent)
        if isinstance(request, Candidates):
            list(request.candidates())
    except InvalidRequest as error:
        raise _invalid(str(error), [FieldError(pointer=error.pointer, detail=str(error))]) from None
    except ValidationError as error:
        found = validation_errors(error, sent, form)
        raise _invalid(summary(found), found) from None
    headers = {"Content-Type": "application/json"}
    if problem is not None:
        headers[HEADER] = question_hash(problem)
    # as it was given: reading trajectories puts their first messages into the problem, as the server will
    as_given = request.model_copy(update={"problem": problem})
    body = as_given.model_dump_json(exclude_unset=True, include=set(sent)).encode()
    return Call("POST", path, result, body, headers, seconds)


def _invalid(detail: str, found: Sequence[FieldError] = ()) -> UnprmError:
    return errors.make_error(InvalidRequest, InvalidRequest.code, detail, found)


score_steps: Operation[ScoreResponse] = partial(_build, "/score_steps", ScoreRequest, ScoreResponse)
compare: Operation[CompareResponse] = partial(_build, "/vote/compare", CompareRequest, CompareResponse)
feedback: Operation[FeedbackResponse] = partial(_build, "/feedback", FeedbackRequest, FeedbackResponse)
grade: Operation[GradeResponse] = partial(_build, "/grade", GradeRequest, GradeResponse)


def read(call: Call[Result], response: httpx.Response) -> Result:
    if response.status_code != 200:
        raise errors.of_response(response.status_code, response.headers, response.content, response.url)
    try:
        # a newer server may send fields that this client does not know
        result = call.result.model_validate_json(response.content, extra="ignore")
    except ValidationError:
        server = errors.server_at(response.url)
        raise errors.UnexpectedResponse(200, f"{server}: the body is not a {call.result.__name__}") from None
    if isinstance(result, VoteResponse):
        result._request_id = response.headers.get("X-Request-ID")
    return result


class Settings:
    """A client's address, key, time limit and attempts, by the arguments of `Client`."""

    _http_client: Callable[..., Any]

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = SECONDS,
        attempts: int = ATTEMPTS,
        transport: Any = None,
        verify: Any = True,
    ) -> None:
        url = os.environ.get("UNPRM_CLIENT_URL", URL) if url is None else url
        api_key = os.environ.get("UNPRM_CLIENT_KEY") if api_key is None else api_key
        try:
            _URL.validate_python(url)
        except ValidationError as error:
            raise errors.ConnectionFailed(f"the server's URL can't be used: {error.errors()[0]['msg']}") from None
        self._seconds, self._max_attempts = timeout, attempts
        self._http = self._http_client(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout,
            # no limit of connections, where httpx would stop at 100: the caller decides how many calls are in flight
            limits=httpx.Limits(),
            transport=transport,
            verify=verify,
        )

    def _attempts(self, call: Call[Any]) -> Attempts:
        return Attempts(self._max_attempts, self._seconds if call.seconds is None else call.seconds)


def attempt(call: Call[Any], http: httpx.Client | httpx.AsyncClient, attempts: Attempts) -> httpx.Request:
    """The request of the next attempt, which tells the server its deadline and waits a little longer."""
    if (left := attempts.left) <= 0:
        raise errors.DeadlineExceeded.saying(f"the call was not answered within its {attempts.seconds:g} s")
    headers = {**call.headers, "X-Request-Timeout": f"{left:.3f}"}
    return http.build_request(call.method, call.path, content=call.body, headers=headers, timeout=left + _GRACE)


def pause(attempts: Attempts, error: errors.ClientError) -> float:
    """As `Attempts.pause`. Repeating scores and votes is safe."""
    again = isinstance(error, errors.ConnectionFailed | errors.TryAgain)
    return attempts.pause(error, again=again, retry_after=error.retry_after)


@contextmanager
def client_errors(request: httpx.Request) -> Iterator[None]:
    """Turns httpx's errors into the clients' errors, which name the server's URL."""
    server = errors.server_at(request.url)
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise errors.ConnectionFailed(
            f"{server} can't be reached: {error}; start it with `unprm serve`, or name another by --url"
        ) from error
    except httpx.TimeoutException as error:
        seconds = request.extensions["timeout"]["read"]
        raise errors.DeadlineExceeded.saying(f"{server} did not answer within {seconds:.1f} s") from error
    except httpx.HTTPError as error:
        raise errors.ConnectionFailed(f"{server}: {type(error).__name__}: {error}") from error


_Pending = TypeVar("_Pending", bound="Future[Any] | asyncio.Future[Any]")


def ahead(calls: Iterator[_Pending], concurrency: int) -> Generator[_Pending, None, None]:
    """The calls in order, each submitted ahead as it is taken from `calls`. Closing the generator cancels the rest."""
    waiting: deque[_Pending] = deque()
    try:
        for call in calls:
            waiting.append(call)
            if len(waiting) >= _AHEAD * concurrency:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:  # a caller that stops reading needs no more answers
        for call in waiting:
            call.cancel()
