"""The synchronous client."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from unprm.types import Strategy
from unprm.wire import CompareResponse, ModelResponse, PreviewResponse, ScoreResponse, VoteResponse
from unprm_client import _base
from unprm_client._base import AnySolution, Attempts, Call, Result, ScoreOptions, VoteOptions
from unprm_client._http import failure
from unprm_client.errors import ClientError
from unprm_client.progress import Progress


class Client:
    """Client of an unprm server, for any thread. Close it, or use it as a context manager.

    `url`: the server's address. `api_key`: sent as a bearer token. `timeout`: seconds for a call, including all its
    attempts; the server is told the time left and stops working when it is up. `attempts`: how often a call is made at
    most, if the connection breaks or the server asks to try again. `transport` and `verify` are httpx's.

    A call that fails raises a `ClientError`.
    """

    def __init__(
        self,
        url: str = _base.URL,
        *,
        api_key: str | None = None,
        timeout: float = _base.SECONDS,
        attempts: int = _base.ATTEMPTS,
        transport: httpx.BaseTransport | None = None,
        verify: Any = True,
    ) -> None:
        self._seconds, self._attempts = timeout, attempts
        self._http = httpx.Client(
            base_url=url, headers=_base.headers(api_key), timeout=timeout, transport=transport, verify=verify
        )

    def score_steps(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """A score in [0, 1] for every step of every solution. `problem` may be None if all have step scores."""
        return self._send(_base.score_call(problem, solutions, **options))

    def vote(
        self, strategy: Strategy, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
    ) -> VoteResponse:
        """The answer that a vote elects among those of the solutions."""
        return self._send(_base.vote_call(strategy, problem, solutions, **options))

    def compare(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
    ) -> CompareResponse:
        """The outcomes of all votes, over one scoring pass."""
        return self._send(_base.compare_call(problem, solutions, **options))

    def preview(self, problem: str, solution: AnySolution, model: str | None = None) -> PreviewResponse:
        """The exact input of the model, which is not run."""
        return self._send(_base.preview_call(problem, solution, model))

    def model(self, name: str | None = None) -> ModelResponse:
        """A served model, by default the first, and the server's limits."""
        return self._send(_base.model_call(name))

    def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once the model is loaded; if the time is up before, raises the last error."""
        until = time.monotonic() + (self._seconds if timeout is None else timeout)
        while True:
            try:
                self._attempt(_base.READY, Attempts(max(0.1, until - time.monotonic())))
                return
            except ClientError as error:
                if not _base.may_become_ready(error) or time.monotonic() + _base.READY_PAUSE >= until:
                    raise
            time.sleep(_base.READY_PAUSE)

    def score_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> Iterator[ScoreResponse | ClientError]:
        """Yields the result or error of each request, in their order; a request has the fields of `score_steps`, and an
        error does not stop the others. At most `concurrency` at a time. `progress` shows a bar on stderr (rich)."""
        return self._all((_base.later(_base.score_call, request) for request in requests), concurrency, progress)

    def vote_all(
        self,
        strategy: Strategy,
        requests: Iterable[Mapping[str, Any]],
        *,
        concurrency: int = 8,
        progress: bool = False,
    ) -> Iterator[VoteResponse | ClientError]:
        """As `score_all`, for votes."""
        calls = (_base.later(_base.vote_call, {"strategy": strategy, **request}) for request in requests)
        return self._all(calls, concurrency, progress)

    def compare_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> Iterator[CompareResponse | ClientError]:
        """As `score_all`, for all votes at once."""
        return self._all((_base.later(_base.compare_call, request) for request in requests), concurrency, progress)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, call: Call[Result]) -> Result:
        attempts = Attempts(self._seconds if call.seconds is None else call.seconds, self._attempts)
        while True:
            try:
                return self._attempt(call, attempts)
            except ClientError as error:
                pause = attempts.pause(error)
            time.sleep(pause)

    def _attempt(self, call: Call[Result], attempts: Attempts) -> Result:
        marks, seconds = attempts.begin()
        try:
            answer = self._http.request(
                call.method, call.path, content=call.body, headers={**call.headers, **marks}, timeout=seconds
            )
        except httpx.HTTPError as error:
            raise failure(error, seconds) from error
        return call.read(answer.status_code, answer.headers, answer.content)

    def _all(
        self, calls: Iterable[Callable[[], Call[Result]]], concurrency: int, progress: bool
    ) -> Iterator[Result | ClientError]:
        waiting: deque[Future[Result | ClientError]] = deque()
        with ThreadPoolExecutor(concurrency) as pool, Progress(progress) as shown:
            try:
                for call in calls:
                    waiting.append(pool.submit(self._outcome, call))
                    shown.submitted()
                    if len(waiting) >= _base.AHEAD * concurrency:
                        yield waiting.popleft().result()
                        shown.answered()
                while waiting:
                    yield waiting.popleft().result()
                    shown.answered()
            finally:  # a caller that stops reading needs no more answers
                for future in waiting:
                    future.cancel()

    def _outcome(self, call: Callable[[], Call[Result]]) -> Result | ClientError:
        try:
            return self._send(call())
        except ClientError as error:
            return error
