"""The clients: `Client` waits, `AsyncClient` awaits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from unprm.votes.registry import Strategy
from unprm.wire import (
    CompareResponse,
    FeedbackResponse,
    GradeResponse,
    ModelResponse,
    PairIn,
    ScoreResponse,
    VoteResponse,
)
from unprm_client import _base
from unprm_client._base import AnySolution, Fields, Operation, Result, ahead
from unprm_client.errors import ClientError

P = ParamSpec("P")
Now = TypeVar("Now")
Requests = Iterable[Mapping[str, Any]]


class Client(_base.Settings):
    """Client of an unprm server, for any thread. Close it, or use it as a context manager. Failed calls raise a
    `ClientError`.

    `url`: by default that in UNPRM_CLIENT_URL, else http:

    127.0.0.1:8000. `api_key`: a bearer token, by default that in UNPRM_CLIENT_KEY. `timeout`: seconds for a call with
    all its attempts, which the server is told. `attempts`: at most, if the connection breaks or the server asks to try
    again. `transport`, `verify`: httpx's.
    """

    _http_client = httpx.Client

    def score_steps(
        self, /, problem: str | None = None, solutions: Sequence[AnySolution] = (), **options: Any
    ) -> ScoreResponse:
        """A score in [0, 1] for every step of every solution. `problem` may be None with `problems`, `trajectories`, or
        step scores for all. `options`: other fields of `ScoreRequest`, and `timeout`, seconds for the whole call."""
        return self._send(_base.score_steps, {"problem": problem, "solutions": solutions, **options})

    def vote(
        self,
        /,
        problem: str | None = None,
        solutions: Sequence[AnySolution] = (),
        strategy: Strategy | None = None,
        *,
        step_scores: Sequence[Sequence[float] | None] | None = None,
        **options: Any,
    ) -> VoteResponse:
        """The answer that a vote, by default the server's, elects among those of the solutions. No model runs for
        solution i with `step_scores[i]`. `options` as of `score_steps`, and the vote's settings (`unprm.votes`)."""
        fields = {"problem": problem, "solutions": solutions, "strategy": strategy, "step_scores": step_scores}
        return self._send(_base.vote, fields | options)

    def compare(
        self, /, problem: str | None = None, solutions: Sequence[AnySolution] = (), **options: Any
    ) -> CompareResponse:
        """The outcomes of all votes, over one scoring pass. `options` as of `vote`."""
        return self._send(_base.compare, {"problem": problem, "solutions": solutions, **options})

    def grade(self, /, pairs: Sequence[PairIn | Mapping[str, Any]], **options: Any) -> GradeResponse:
        """Whether each pair's answer is right: it has `gold`, the right answer or a list, and an `answer`, or a `text`
        to find it in. `options`: `extraction`, and `timeout`."""
        return self._send(_base.grade, {"pairs": pairs, **options})

    def feedback(
        self, /, request_id: str, *, correct: bool | None = None, answer: str | None = None, **options: Any
    ) -> FeedbackResponse:
        """Says whether the answer of an earlier vote was `correct`, or which `answer` is. `request_id`: the vote's, or
        the header X-Request-ID of a chat completion. `options`: `timeout`."""
        return self._send(_base.feedback, {"request_id": request_id, "correct": correct, "answer": answer, **options})

    def model(self, name: str | None = None) -> ModelResponse:
        """A served model, by default the first, and the server's limits."""
        return self._send(_base.model, {"name": name})

    def score_all(self, requests: Requests, *, concurrency: int = 8) -> Iterator[ScoreResponse | ClientError]:
        """Yields the result or error of each request, in order; a request has the fields of `score_steps`."""
        return self._all(_base.score_steps, requests, concurrency)

    def vote_all(
        self, requests: Requests, strategy: Strategy | None = None, *, concurrency: int = 8
    ) -> Iterator[VoteResponse | ClientError]:
        return self._all(_base.vote, requests, concurrency, strategy=strategy)

    def compare_all(self, requests: Requests, *, concurrency: int = 8) -> Iterator[CompareResponse | ClientError]:
        return self._all(_base.compare, requests, concurrency)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _send(self, operation: Operation[Result], fields: Fields) -> Result:
        call = operation(fields)
        attempts = self._attempts(call)
        while True:
            try:
                request = _base.attempt(call, self._http, attempts)
                with _base.client_errors(request):
                    response = self._http.send(request)
                return _base.read(call, response)
            except ClientError as error:
                wait = _base.pause(attempts, error)
            time.sleep(wait)

    def _all(
        self, operation: Operation[Result], requests: Requests, concurrency: int, **common: Any
    ) -> Iterator[Result | ClientError]:
        def outcome(request: Fields) -> Result | ClientError:
            try:
                return self._send(operation, {**common, **request})
            except ClientError as error:
                return error

        with ThreadPoolExecutor(concurrency) as pool:
            submitted = (pool.submit(outcome, request) for request in requests)
            with closing(ahead(submitted, concurrency)) as outcomes:
                for call in outcomes:
                    yield call.result()


def _awaited(
    method: Callable[Concatenate[Client, P], Now],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, Now]]:
    """A method that returns what `_send` does: here a coroutine."""
    return method  # type: ignore[return-value]


def _iterated(
    method: Callable[Concatenate[Client, P], Iterator[Now]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[Now]]:
    return method  # type: ignore[return-value]


class AsyncClient(_base.Settings):
    """Client of an unprm server within one event loop. Its arguments and methods are those of `Client`, as coroutines
    and asynchronous iterators. Cancelling a call closes its connection, and the server drops its work."""

    _http_client = httpx.AsyncClient

    score_steps = _awaited(Client.score_steps)
    vote = _awaited(Client.vote)
    compare = _awaited(Client.compare)
    grade = _awaited(Client.grade)
    feedback = _awaited(Client.feedback)
    model = _awaited(Client.model)
    score_all = _iterated(Client.score_all)
    vote_all = _iterated(Client.vote_all)
    compare_all = _iterated(Client.compare_all)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _send(self, operation: Operation[Result], fields: Fields) -> Result:
        call = operation(fields)
        attempts = self._attempts(call)
        while True:
            try:
                request = _base.attempt(call, self._http, attempts)
                with _base.client_errors(request):
                    response = await self._http.send(request)
                return _base.read(call, response)
            except ClientError as error:
                wait = _base.pause(attempts, error)
            await asyncio.sleep(wait)

    async def _all(
        self, operation: Operation[Result], requests: Requests, concurrency: int, **common: Any
    ) -> AsyncIterator[Result | ClientError]:
        places = asyncio.Semaphore(concurrency)

        async def outcome(request: Fields) -> Result | ClientError:
            async with places:
                try:
                    return await self._send(operation, {**common, **request})
                except ClientError as error:
                    return error

        submitted = (asyncio.create_task(outcome(request)) for request in requests)
        with closing(ahead(submitted, concurrency)) as outcomes:
            for call in outcomes:
                yield await call
