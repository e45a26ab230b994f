"""The operations of the server, one function each: from its arguments to the request, and the type of its result.

Both clients have a method for each of these functions, with its arguments and its docstring.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from unprm.affinity import HEADER, question_hash
from unprm.errors import FieldError, InvalidRequest, UnprmError
from unprm.fields import summary, unknown, validation_errors
from unprm.votes.registry import VOTES, Strategy
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
    PairIn,
    ScoreRequest,
    ScoreResponse,
    SolutionIn,
    VoteResponse,
    with_scores,
)
from unprm_client import errors

Result = TypeVar("Result", bound=BaseModel)
_FIELDS = tuple(
    dict.fromkeys([*CompareRequest.model_fields, *ScoreRequest.model_fields, "strategy", "step_scores", "timeout"])
)
AnySolution = str | Sequence[str] | SolutionIn | Mapping[str, Any]
"""Free text, steps, or the fields of `SolutionIn`."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A request, and the type of its result; `seconds`: as in `Attempts`."""

    method: str
    path: str
    result: type[Result]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None

    def request(
        self, http: httpx.Client | httpx.AsyncClient, headers: Mapping[str, str], seconds: float
    ) -> httpx.Request:
        """The request for one attempt, with additional headers and a timeout."""
        return http.build_request(
            self.method, self.path, content=self.body, headers={**self.headers, **headers}, timeout=seconds
        )

    def read(self, response: httpx.Response) -> Result:
        """The answer. Raises a `ClientError`."""
        if response.status_code != 200:
            raise errors.of_response(response.status_code, response.headers, response.content, response.url)
        try:
            # a newer server may send fields that this client does not know
            result = self.result.model_validate_json(response.content, extra="ignore")
        except ValidationError:
            server = errors.server_at(response.url)
            raise errors.UnexpectedResponse(200, f"{server}: the body is not a {self.result.__name__}") from None
        if isinstance(result, VoteResponse):
            result._request_id = response.headers.get("X-Request-ID")
        return result


@dataclass(frozen=True, slots=True)
class Calls(Generic[Result]):
    """Many calls, made one after the other as they are wanted: `make` from the fields of each request, over the common
    `fields`. At most `concurrency` are in flight."""

    make: Callable[..., Call[Result]]
    requests: Iterable[Mapping[str, Any]]
    fields: Mapping[str, Any]
    concurrency: int

    def __iter__(self) -> Iterator[Callable[[], Call[Result]]]:
        """For each request a function that makes its call; it raises `InvalidRequest`."""
        for request in self.requests:
            yield partial(_from_fields, self.make, {**self.fields, **request})


def score_steps(
    problem: str | None = None, solutions: Sequence[AnySolution] = (), **options: Any
) -> Call[ScoreResponse]:
    """A score in [0, 1] for every step of every solution. `problem` may be None if all have step scores, with
    `problems`, one for each, or for `trajectories` in place of the solutions. `options`: the other fields of
    `ScoreRequest`, and `timeout`, seconds for the whole call, all its attempts together."""
    return _work("/score_steps", ScoreRequest, ScoreResponse, problem, options, solutions=solutions)


def vote(
    problem: str | None = None,
    solutions: Sequence[AnySolution] = (),
    strategy: Strategy | None = None,
    *,
    step_scores: Sequence[Sequence[float] | None] | None = None,
    **options: Any,
) -> Call[VoteResponse]:
    """The answer that a vote elects among those of the solutions. Without a `strategy`, the server's default vote; the
    response says which that was. No model runs for solution i where `step_scores[i]` is given. `options` as of
    `score_steps`, and the settings of the vote (`unprm.votes`)."""
    if step_scores is not None:
        try:
            solutions = with_scores(solutions, step_scores)
        except ValueError as error:
            raise _invalid(str(error)) from None
    if strategy is None:
        return _work("/vote", DefaultVoteRequest, VoteResponse, problem, options, solutions=solutions)
    if strategy not in [*VOTES]:  # a list, where arguments are in another order, can't be looked up
        raise _invalid(f"{strategy!r} {unknown(strategy, VOTES, 'a vote')}")
    return _work(f"/vote/{strategy}", VOTE_REQUESTS[strategy], VoteResponse, problem, options, solutions=solutions)


def compare(problem: str | None = None, solutions: Sequence[AnySolution] = (), **options: Any) -> Call[CompareResponse]:
    """The outcomes of all votes, over one scoring pass. `options` as of `vote`."""
    return _work("/vote/compare", CompareRequest, CompareResponse, problem, options, solutions=solutions)


def grade(pairs: Sequence[PairIn | Mapping[str, Any]], **options: Any) -> Call[GradeResponse]:
    """Whether each pair's answer is right: a pair has `gold`, the right answer or a list of them, and an `answer`, or a
    `text` to find it in. `options`: `extraction`, and `timeout` as of `score_steps`."""
    return _work("/grade", GradeRequest, GradeResponse, None, options, pairs=pairs)


def feedback(
    request_id: str, *, correct: bool | None = None, answer: str | None = None, **options: Any
) -> Call[FeedbackResponse]:
    """Says whether the answer of an earlier vote was `correct`, or which `answer` is; the server needs a journal.
    `request_id`: the vote's, or the header X-Request-ID of a chat completion. `options`: `timeout` as of
    `score_steps`."""
    verdict = {name: value for name, value in (("correct", correct), ("answer", answer)) if value is not None}
    return _work("/feedback", FeedbackRequest, FeedbackResponse, None, options, request_id=request_id, **verdict)


def model(name: str | None = None) -> Call[ModelResponse]:
    """A served model, by default the first, and the server's limits."""
    return Call("GET", "/model" if name is None else f"/model?name={name}", ModelResponse)


def score_all(requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8) -> Calls[ScoreResponse]:
    """Yields the result or error of each request, in their order; a request has the fields of `score_steps`, and an
    error does not stop the others. At most `concurrency` at a time."""
    return Calls(score_steps, requests, {}, concurrency)


def vote_all(
    requests: Iterable[Mapping[str, Any]], strategy: Strategy | None = None, *, concurrency: int = 8
) -> Calls[VoteResponse]:
    """As `score_all`, for votes."""
    return Calls(vote, requests, {"strategy": strategy}, concurrency)


def compare_all(requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8) -> Calls[CompareResponse]:
    """As `score_all`, for all votes at once."""
    return Calls(compare, requests, {}, concurrency)


def _from_fields(call: Callable[..., Call[Result]], request: Mapping[str, Any]) -> Call[Result]:
    for name in request:
        if name not in _FIELDS:
            raise _invalid(f"{name} {unknown(name, _FIELDS, 'a field of a request')}")
    return call(**{"problem": None, "solutions": (), **request})


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
    if "trajectories" in fields and not fields["solutions"]:
        del fields["solutions"]
    try:
        request = form.model_validate(fields)
        if isinstance(request, Candidates):
            request.candidates()
    except InvalidRequest as error:
        raise _invalid(str(error), [FieldError(pointer=error.pointer, detail=str(error))]) from None
    except ValidationError as error:
        found = validation_errors(error, fields, form)
        raise _invalid(summary(found), found) from None
    marks = {"Content-Type": "application/json"}
    if problem is not None:
        marks[HEADER] = question_hash(problem)
    # as it was given: reading trajectories puts their first messages into the problem, as the server will
    as_given = request.model_copy(update={"problem": problem})
    body = as_given.model_dump_json(exclude_unset=True, include=set(fields)).encode()
    return Call("POST", path, result, body, marks, seconds)


def _invalid(detail: str, found: Sequence[FieldError] = ()) -> UnprmError:
    return errors.make_error(InvalidRequest, InvalidRequest.code, detail, found)
