"""The synchronous client."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class Client(BaseClient):
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
        super().__init__(timeout, attempts)
        self._http = httpx.Client(
            base_url=url,
            headers=_base.headers(api_key),
            timeout=timeout,
            limits=_base.LIMITS,
            transport=transport,
            verify=verify,
        )

    def score_steps(
        self, problem: str | None, solutions: Sequence[AnySolution], **options: Unpack[ScoreOptions]
    ) -> ScoreResponse:
        """A score in [0, 1] for every step of every solution. `problem` may be None if all have step scores."""
        return self._send(_calls.score_call(problem, solutions, **options))

    def vote(
        self,
        strategy: Strategy | None = None,
        problem: str | None = None,
        solutions: Sequence[AnySolution] = (),
        **options: Any,
    ) -> VoteResponse:
        """The answer that a vote elects among those of the solutions. None: by the server's default vote; the response
        says which that was. `options`: `ScoreOptions`, and the settings of the vote (`unprm.votes`)."""
        return self._send(_calls.vote_call(strategy, problem, solutions, **options))

    def compare(self, problem: str | None, solutions: Sequence[AnySolution], **options: Any) -> CompareResponse:
        """The outcomes of all votes, over one scoring pass. `options` as of `vote`."""
        return self._send(_calls.compare_call(problem, solutions, **options))

    def preview(self, problem: str, solution: AnySolution, model: str | None = None) -> PreviewResponse:
        """The exact input of the model, which is not run."""
        return self._send(_calls.preview_call(problem, solution, model))

    def model(self, name: str | None = None) -> ModelResponse:
        """A served model, by default the first, and the server's limits."""
        return self._send(_calls.model_call(name))

    def wait_ready(self, timeout: float | None = None) -> None:
        """Returns once the model is loaded; if the time is up before, raises the last error."""
        self._send(_calls.ready_call(timeout))

    def score_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> Iterator[ScoreResponse | ClientError]:
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
    ) -> Iterator[VoteResponse | ClientError]:
        """As `score_all`, for votes."""
        return self._all(_calls.later(_calls.vote_call, requests, strategy=strategy), concurrency, progress)

    def compare_all(
        self, requests: Iterable[Mapping[str, Any]], *, concurrency: int = 8, progress: bool = False
    ) -> Iterator[CompareResponse | ClientError]:
        """As `score_all`, for all votes at once."""
        return self._all(_calls.later(_calls.compare_call, requests), concurrency, progress)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _send(self, call: Call[Result]) -> Result:
        attempts = self._attempts(call)
        while True:
            try:
                request = call.request(self._http, *attempts.begin())
                with client_errors(request):
                    response = self._http.send(request)
                return call.read(response)
            except ClientError as error:
                pause = attempts.pause(error)
            time.sleep(pause)

    def _all(
        self, calls: Iterable[Callable[[], Call[Result]]], concurrency: int, progress: bool
    ) -> Iterator[Result | ClientError]:
        with ThreadPoolExecutor(concurrency) as pool, Progress(progress) as shown:
            submitted = (pool.submit(self._outcome, call) for call in calls)
            with closing(ahead(submitted, concurrency, shown)) as outcomes:
                for outcome in outcomes:
                    yield outcome.result()

    def _outcome(self, call: Callable[[], Call[Result]]) -> Result | ClientError:
        try:
            return self._send(call())
        except ClientError as error:
            return error
