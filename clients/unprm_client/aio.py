"""The client for asyncio: the calls of `client.Client` as coroutines."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
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


class AsyncClient:
    """Client of an unprm server within one event loop; the arguments are those of `Client`. Cancelling a call closes
    its connection, and the server drops its work."""

    def __init__(
        self,
        url: str = _base.URL,
        *,
        api_key: str | None = None,
        timeout: float = _base.SECONDS,
        attempts: int = _base.ATTEMPTS,
        transport: httpx.AsyncBaseTransport | None = None,
        verify: Any = True,
    ) -> None:
        self._seconds, self._attempts = timeout, attempts
        self._http = httpx.AsyncClient(
            base_url=url, headers=_base.headers(api_key), timeout=timeout, transport=transport, verify=verify
        )

    async def score_steps(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """A score in [0, 1] for every step of every solution. `problem` may be None if all have step scores."""
        return await self._send(_base.score_call(problem, solutions, **options))

    async def vote(
        self, strategy: Strategy, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
    ) -> VoteResponse:
        """The answer that a vote elects among those of the solutions."""
        return await self._send(_base.vote_call(strategy, problem, solutions, **options))

    async def compare(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[VoteOptions]
    ) -> CompareResponse:
        """The outcomes of all votes, over one scoring pass."""
        return await self._send(_base.compare_call(problem, solutions, **options))

    async def preview(self, problem: str, solution: AnySolution, model: str | None = None) -> PreviewResponse:
        """The exact input of the model, which is not run."""
        return await self._send(_base.preview_call(problem, solution, model))

    async def model(self, name: str | None = None) -> ModelResponse:
        """A served model, by default the first, and the server's limits."""
        return await self._send(_base.model_call(name))

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once the model is loaded; if the time is up before, raises the last error."""
        clock = asyncio.get_running_loop().time
        until = clock() + (self._seconds if timeout is None else timeout)
        while True:
            try:
                await self._attempt(_base.READY, Attempts(max(0.1, until - clock())))
                return
            except ClientError as error:
                if not _base.may_become_ready(error) or clock() + _base.READY_PAUSE >= until:
                    raise
            await asyncio.sleep(_base.READY_PAUSE)

    def score_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> AsyncIterator[ScoreResponse | ClientError]:
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
    ) -> AsyncIterator[VoteResponse | ClientError]:
        """As `score_all`, for votes."""
        calls = (_base.later(_base.vote_call, {"strategy": strategy, **request}) for request in requests)
        return self._all(calls, concurrency, progress)

    def compare_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> AsyncIterator[CompareResponse | ClientError]:
        """As `score_all`, for all votes at once."""
        return self._all((_base.later(_base.compare_call, request) for request in requests), concurrency, progress)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, call: Call[Result]) -> Result:
        attempts = Attempts(self._seconds if call.seconds is None else call.seconds, self._attempts)
        while True:
            try:
                return await self._attempt(call, attempts)
            except ClientError as error:
                pause = attempts.pause(error)
            await asyncio.sleep(pause)

    async def _attempt(self, call: Call[Result], attempts: Attempts) -> Result:
        marks, seconds = attempts.begin()
        try:
            answer = await self._http.request(
                call.method, call.path, content=call.body, headers={**call.headers, **marks}, timeout=seconds
            )
        except httpx.HTTPError as error:
            raise failure(error, seconds) from error
        return call.read(answer.status_code, answer.headers, answer.content)

    async def _all(
        self, calls: Iterable[Callable[[], Call[Result]]], concurrency: int, progress: bool
    ) -> AsyncIterator[Result | ClientError]:
        places = asyncio.Semaphore(concurrency)
        waiting: deque[asyncio.Task[Result | ClientError]] = deque()
        with Progress(progress) as shown:
            try:
                for call in calls:
                    waiting.append(asyncio.create_task(self._outcome(call, places)))
                    shown.submitted()
                    if len(waiting) >= _base.AHEAD * concurrency:
                        yield await waiting.popleft()
                        shown.answered()
                while waiting:
                    yield await waiting.popleft()
                    shown.answered()
            finally:  # a caller that stops reading needs no more answers
                for task in waiting:
                    task.cancel()

    async def _outcome(self, call: Callable[[], Call[Result]], places: asyncio.Semaphore) -> Result | ClientError:
        async with places:
            try:
                return await self._send(call())
            except ClientError as error:
                return error
