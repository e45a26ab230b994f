"""The common parts of both clients, without input or output: calls, their time limits and their retries."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar, Unpack, get_args

from pydantic import BaseModel, ValidationError

from unprm.affinity import HEADER, question_hash
from unprm.errors import InvalidRequest
from unprm.fields import field_errors
from unprm.types import Aggregate, Extraction, Normalization, Split, Strategy
from unprm.wire import (
    VOTE_REQUESTS,
    Candidates,
    CompareResponse,
    FieldError,
    ModelResponse,
    OnInvalid,
    PreviewRequest,
    PreviewResponse,
    ProblemDetails,
    ScoreRequest,
    ScoreResponse,
    SolutionIn,
    StatusResponse,
    VoteResponse,
    WrfRequest,
)
from unprm_client import errors

Result = TypeVar("Result", bound=BaseModel)
_FIELDS = {"strategy", "timeout", *WrfRequest.model_fields}
AnySolution = str | Sequence[str] | SolutionIn | Mapping[str, Any]
"""Free text, steps, or the fields of `SolutionIn`."""

URL = "http://127.0.0.1:8000"
SECONDS = 60.0
ATTEMPTS = 5
_FIRST_WAIT = 0.25
"""Maximum seconds before the second attempt; doubled for each further one."""
_LONGEST_WAIT = 15.0
_GRACE = 1.0
"""Seconds to wait after the deadline for the server's answer that it has passed."""
AHEAD = 4
"""Most calls submitted but not yet returned to the caller, as a multiple of `concurrency`."""
READY_PAUSE = 0.2
"""Seconds between two checks of whether the server is ready."""


class ScoreOptions(TypedDict, total=False):
    """Fields of a request for scores; `timeout`: seconds for the whole call, all its attempts together."""

    split: Split
    extraction: Extraction
    on_invalid: OnInvalid
    aggregate: Aggregate
    threshold: float
    log_odds: bool
    model: str | list[str]
    timeout: float


class VoteOptions(ScoreOptions, total=False):
    """For `wrf` and `compare`: `alpha` weighs reward against frequency, `normalization` makes them comparable."""

    alpha: float
    normalization: Normalization


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request, and the type of its result."""

    method: str
    path: str
    result: type[Result]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> Result:
        """The answer. Raises a `ClientError`."""
        if status != 200:
            raise errors.of_response(status, headers, body)
        try:
            # a newer server may send fields that this client does not know
            return self.result.model_validate_json(body, extra="ignore")
        except ValidationError:
            raise errors.UnexpectedResponse(status, f"the body is no {self.result.__name__}") from None


class Attempts:
    """The attempts of one call, until its time is up. `now` is a clock in seconds, `jitter` is in [0, 1)."""

    def __init__(
        self,
        seconds: float,
        most: int = ATTEMPTS,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._most, self._now, self._jitter = most, now, jitter
        self._seconds, self._until = seconds, now() + seconds
        self._made = 0

    def begin(self) -> tuple[dict[str, str], float]:
        """Headers that tell the server the deadline of the next attempt, and seconds to wait for its answer."""
        left = self._until - self._now()
        if left <= 0:
            raise errors.DeadlineExceeded(f"the call was not answered within its {self._seconds:g} s")
        self._made += 1
        return {"X-Request-Timeout": f"{left:.3f}"}, left + _GRACE

    def pause(self, error: errors.ClientError) -> float:
        """Seconds before the next attempt. Raises the error if there is none: it would change nothing, or there is no
        attempt or time left. Repeating scores and votes is safe."""
        if self._made >= self._most or not isinstance(error, errors.ConnectionFailed | errors.TryAgain):
            raise error
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._made - 1)) * self._jitter()
        if isinstance(error, errors.TryAgain) and error.retry_after is not None:
            wait += error.retry_after  # never earlier than asked, and not all clients at the same moment
        if self._now() + wait >= self._until:
            raise error
        return wait


def score_call(
    problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[ScoreOptions]
) -> Call[ScoreResponse]:
    """Asks for step scores."""
    return _work("/score_steps", ScoreRequest, ScoreResponse, problem, options, solutions=solutions)


def vote_call(
    strategy: Strategy, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
) -> Call[VoteResponse]:
    """Asks for a vote."""
    if strategy not in get_args(Strategy):
        raise _invalid(f"{strategy!r} is no strategy; there are {', '.join(get_args(Strategy))}")
    return _work(f"/vote/{strategy}", VOTE_REQUESTS[strategy], VoteResponse, problem, options, solutions=solutions)


def compare_call(
    problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
) -> Call[CompareResponse]:
    """Asks for all votes."""
    return _work("/vote/compare", WrfRequest, CompareResponse, problem, options, solutions=solutions)


def preview_call(problem: str, solution: AnySolution, model: str | None) -> Call[PreviewResponse]:
    """Asks for the exact input of the model."""
    options = {} if model is None else {"model": model}
    return _work("/preview", PreviewRequest, PreviewResponse, problem, options, solution=solution)


def model_call(name: str | None) -> Call[ModelResponse]:
    """Asks for a description of a model."""
    return Call("GET", "/model" if name is None else f"/model?name={name}", ModelResponse)


READY = Call("GET", "/readyz", StatusResponse)


def may_become_ready(error: errors.ClientError) -> bool:
    """Whether a server that answers with this error may still become ready."""
    return isinstance(error, errors.ConnectionFailed | errors.TryAgain)


def later(call: Callable[..., Call[Result]], request: Mapping[str, Any]) -> Callable[[], Call[Result]]:
    """A function that makes the call from a request's fields and checks them only then; raises `InvalidRequest`."""

    def make() -> Call[Result]:
        unknown = set(request) - _FIELDS
        if unknown:
            raise _invalid(
                f"{', '.join(sorted(unknown))}: no field of a request; there are {', '.join(sorted(_FIELDS))}"
            )
        return call(**{"problem": None, "solutions": (), **request})

    return make


def headers(api_key: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _work(
    path: str,
    form: type[BaseModel],
    result: type[Result],
    problem: str | None,
    options: Mapping[str, Any],
    **more: Any,
) -> Call[Result]:
    """A call whose body is validated here: an invalid one raises at once, the same error as from the server."""
    fields = {**options, **more} if problem is None else {"problem": problem, **options, **more}
    seconds = fields.pop("timeout", None)
    try:
        request = form.model_validate(fields)
        if isinstance(request, Candidates):
            request.candidates()
    except InvalidRequest as error:
        raise _invalid(str(error), [FieldError(pointer=error.pointer, detail=str(error))]) from None
    except ValidationError as error:
        located = [{**details, "loc": ("body", *details["loc"])} for details in error.errors(include_url=False)]
        found = field_errors(located)
        raise _invalid(found[0].detail, found) from None
    marks = {"Content-Type": "application/json"}
    if problem is not None:
        marks[HEADER] = question_hash(problem)
    body = request.model_dump_json(exclude_unset=True).encode()
    return Call("POST", path, result, body, marks, seconds)


def _invalid(detail: str, found: Sequence[Any] = ()) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        ProblemDetails(
            type="urn:unprm:error:invalid_request",
            title="The request does not fit the contract",
            status=0,
            detail=detail,
            code="invalid_request",
            request_id="",
            errors=list(found),
        )
    )
