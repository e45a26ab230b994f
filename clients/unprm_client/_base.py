"""What both clients are made of, without input or output: calls, how long they may take, when they are sent again."""

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
"""Free text, steps, or what `SolutionIn` holds."""

URL = "http://127.0.0.1:8000"
SECONDS = 60.0
ATTEMPTS = 5
_FIRST_WAIT = 0.25
"""Seconds before the second attempt, at the most; doubled for each further one."""
_LONGEST_WAIT = 15.0
_GRACE = 1.0
"""Seconds to wait after the deadline for the server's answer that it has passed."""
AHEAD = 4
"""Calls of many that are made or waited for at most, in units of those made at a time."""
READY_PAUSE = 0.2
"""Seconds between two looks at whether the server is ready."""


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
    """Of `wrf` and `compare`: `alpha` weighs reward against frequency, `normalization` makes them comparable."""

    alpha: float
    normalization: Normalization


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request, and the form of its answer."""

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
            # a newer server may tell more than this client knows
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
        """Headers for the next attempt, by which the server knows the deadline, and seconds to wait for its answer."""
        left = self._until - self._now()
        if left <= 0:
            raise errors.DeadlineExceeded(f"the call was not answered within its {self._seconds:g} s")
        self._made += 1
        return {"X-Request-Timeout": f"{left:.3f}"}, left + _GRACE

    def pause(self, error: errors.ClientError) -> float:
        """Seconds before the next attempt. Raises the error where there is none: nothing would change, or there is no
        time for it. Scores and votes are safe to ask for again."""
        if self._made >= self._most or not isinstance(error, errors.ConnectionFailed | errors.TryAgain):
            raise error
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._made - 1)) * self._jitter()
        if isinstance(error, errors.TryAgain) and error.retry_after is not None:
            wait += error.retry_after  # never earlier, and not all at the same moment
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
    """Asks what the model would read."""
    options = {} if model is None else {"model": model}
    return _work("/preview", PreviewRequest, PreviewResponse, problem, options, solution=solution)


def model_call(name: str | None) -> Call[ModelResponse]:
    """Asks for a description of a model."""
    return Call("GET", "/model" if name is None else f"/model?name={name}", ModelResponse)


READY = Call("GET", "/readyz", StatusResponse)


def may_become_ready(error: errors.ClientError) -> bool:
    """Whether waiting for a server that answers this is worth it."""
    return isinstance(error, errors.ConnectionFailed | errors.TryAgain)


def later(call: Callable[..., Call[Result]], request: Mapping[str, Any]) -> Callable[[], Call[Result]]:
    """A call that is checked when it is made, from a request's fields; raises `InvalidRequest` then."""

    def make() -> Call[Result]:
        unknown = set(request) - _FIELDS
        if unknown:
            raise _invalid(
                f"{', '.join(sorted(unknown))}: no field of a request; there are {', '.join(sorted(_FIELDS))}"
            )
        return call(**{"problem": None, "solutions": (), **request})

    return make


def headers(api_key: str | None) -> dict[str, str]:
    """Of every request."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _work(
    path: str,
    form: type[BaseModel],
    result: type[Result],
    problem: str | None,
    options: Mapping[str, Any],
    **more: Any,
) -> Call[Result]:
    """A call whose body is checked here: a wrong one raises at once, with the same error as the server's."""
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
