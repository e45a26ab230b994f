"""The client for asyncio: the calls of `client.Client` as coroutines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Self, Unpack

import httpx

from unprm.votes.registry import Strategy
from unprm.wire import CompareResponse, ModelResponse, PreviewResponse, ScoreResponse, VoteResponse
from unprm_client import _base, _calls
from unprm_client._base import BaseClient, ahead, client_errors
from unprm_client._calls import AnySolution, Call, Result, ScoreOptions
from unprm_client.errors import ClientError
from unprm_client.progress import Progress


class AsyncClient(BaseClient):
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
        super().__init__(timeout, attempts)
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=_base.headers(api_key),
            timeout=timeout,
            limits=_base.LIMITS,
            transport=transport,
            verify=verify,
        )

    async def score_steps(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """A score in [0, 1] for every step of every solution. `problem` may be None if all have step scores."""
        return await self._send(_calls.score_call(problem, solutions, **options))

    async def vote(
        self,
        strategy: Strategy | None = None,
        problem: str | None = None,
        solutions: Sequence[AnySolution] = (),
        **options: Any,
    ) -> VoteResponse:
        """The answer that a vote elects among those of the solutions. None: by the server's default vote; the response
        says which that was. `options`: `ScoreOptions`, and the settings of the vote (`unprm.votes`)."""
        return await self._send(_calls.vote_call(strategy, problem, solutions, **options))

    async def compare(self, problem: str | None, solutions: Sequence[AnySolution], **options: Any) -> CompareResponse:
        """The outcomes of all votes, over one scoring pass. `options` as of `vote`."""
        return await self._send(_calls.compare_call(problem, solutions, **options))

    async def preview(self, problem: str, solution: AnySolution, model: str | None = None) -> PreviewResponse:
        """The exact input of the model, which is not run."""
        return await self._send(_calls.preview_call(problem, solution, model))

    async def model(self, name: str | None = None) -> ModelResponse:
        """A served model, by default the first, and the server's limits."""
        return await self._send(_calls.model_call(name))

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once the model is loaded; if the time is up before, raises the last error."""
        await self._send(_calls.ready_call(timeout))

    def score_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> AsyncIterator[ScoreResponse | ClientError]:
        """Yields the result or error of each request, in their order; a request has the fields of `score_steps`, and an
        error does not stop the others. At most `concurrency` at a time. `progress` shows a bar on stderr (rich)."""
        return self._all(_calls.later(_calls.score_call, requests), concurrency, progress)

    def vote_all(
        self,
        strategy: Strategy | None = None,
        requests: Iterable[Mapping[str, Any]] = (),
        *,
        concurrency: int = 8,
        progress: bool = False,
    ) -> AsyncIterator[VoteResponse | ClientError]:
        """As `score_all`, for votes."""
        return self._all(_calls.later(_calls.vote_call, requests, strategy=strategy), concurrency, progress)

    def compare_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> AsyncIterator[CompareResponse | ClientError]:
        """As `score_all`, for all votes at once."""
        return self._all(_calls.later(_calls.compare_call, requests), concurrency, progress)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _send(self, call: Call[Result]) -> Result:
        attempts = self._attempts(call)
        while True:
            try:
                request = call.request(self._http, *attempts.begin())
                with client_errors(request):
                    response = await self._http.send(request)
                return call.read(response)
            except ClientError as error:
                pause = attempts.pause(error)
            await asyncio.sleep(pause)

    async def _all(
        self, calls: Iterable[Callable[[], Call[Result]]], concurrency: int, progress: bool
    ) -> AsyncIterator[Result | ClientError]:
        places = asyncio.Semaphore(concurrency)
        with Progress(progress) as shown:
            submitted = (asyncio.create_task(self._outcome(call, places)) for call in calls)
            with closing(ahead(submitted, concurrency, shown)) as outcomes:
                for outcome in outcomes:
                    yield await outcome

    async def _outcome(self, call: Callable[[], Call[Result]], places: asyncio.Semaphore) -> Result | ClientError:
        async with places:
            try:
                return await self._send(call())
            except ClientError as error:
                return error
