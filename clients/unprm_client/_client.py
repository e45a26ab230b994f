"""Both clients: one set of operations over two transports."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from unprm.retries import Attempts
from unprm_client import _operations
from unprm_client._base import ATTEMPTS, LIMITS, SECONDS, URL, ahead, begin, client_errors, pause
from unprm_client._operations import Call, Calls, Result
from unprm_client.errors import ClientError, ConnectionFailed

P = ParamSpec("P")
Now = TypeVar("Now")
Later = TypeVar("Later")


class _Operation(Generic[P, Now, Later]):
    """A method of both clients with the arguments and docstring of the function `describe`; `Client` does what it
    describes by its method `how`, and `AsyncClient` by its own."""

    def __init__(self, describe: Callable[P, Any], how: str) -> None:
        self._describe, self._how, self.__doc__ = describe, how, describe.__doc__

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, Now]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, Later]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Self: ...
    def __get__(self, client: Any, kind: type) -> Any:
        if client is None:
            return self

        @wraps(self._describe)
        def method(*arguments: P.args, **options: P.kwargs) -> Any:
            return getattr(client, self._how)(partial(self._describe, *arguments, **options))

        return method


def _one(describe: Callable[P, Call[Result]]) -> _Operation[P, Result, Coroutine[Any, Any, Result]]:
    return _Operation(describe, "_send")


def _many(
    describe: Callable[P, Calls[Result]],
) -> _Operation[P, Iterator[Result | ClientError], AsyncIterator[Result | ClientError]]:
    return _Operation(describe, "_all")


class _Operations:
    """What both clients can do, and their settings."""

    _transports: Callable[..., Any]
    score_steps = _one(_operations.score_steps)
    vote = _one(_operations.vote)
    compare = _one(_operations.compare)
    grade = _one(_operations.grade)
    feedback = _one(_operations.feedback)
    model = _one(_operations.model)
    score_all = _many(_operations.score_all)
    vote_all = _many(_operations.vote_all)
    compare_all = _many(_operations.compare_all)

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
            if (httpx.URL(url).port or 0) > 65_535:
                raise httpx.InvalidURL("its port is above 65535")
            if httpx.URL(url).scheme not in ("http", "https"):
                raise httpx.InvalidURL("it does not begin with http:// or https://")
        except httpx.InvalidURL as error:
            raise ConnectionFailed(f"the server's URL can't be used: {error}") from None
        self._seconds, self._max_attempts = timeout, attempts
        self._http = self._transports(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout,
            limits=LIMITS,
            transport=transport,
            verify=verify,
        )

    def _attempts(self, call: Call[Result]) -> Attempts:
        return Attempts(self._max_attempts, self._seconds if call.seconds is None else call.seconds)


class Client(_Operations):
    """Client of an unprm server, for any thread. Close it, or use it as a context manager.

    `url`: the server's URL, by default that in UNPRM_CLIENT_URL, else http://127.0.0.1:8000. `api_key`: sent as a
    bearer token, by default that in UNPRM_CLIENT_KEY, if it is set. `timeout`: seconds for a call, including all its
    attempts; the server is told the time left and stops working when it is up. `attempts`: how often a call is made at
    most, if the connection breaks or the server asks to try again. `transport` and `verify` are httpx's.

    A call that fails raises a `ClientError`.
    """

    _transports = httpx.Client

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _send(self, describe: Callable[[], Call[Result]]) -> Result:
        call = describe()
        attempts = self._attempts(call)
        while True:
            try:
                request = call.request(self._http, *begin(attempts))
                with client_errors(request):
                    response = self._http.send(request)
                return call.read(response)
            except ClientError as error:
                wait = pause(attempts, error)
            time.sleep(wait)

    def _all(self, describe: Callable[[], Calls[Result]]) -> Iterator[Result | ClientError]:
        calls = describe()
        with ThreadPoolExecutor(calls.concurrency) as pool:
            submitted = (pool.submit(self._outcome, call) for call in calls)
            with closing(ahead(submitted, calls.concurrency)) as outcomes:
                for outcome in outcomes:
                    yield outcome.result()

    def _outcome(self, describe: Callable[[], Call[Result]]) -> Result | ClientError:
        try:
            return self._send(describe)
        except ClientError as error:
            return error


class AsyncClient(_Operations):
    """Client of an unprm server within one event loop; the arguments are those of `Client`, and its methods are
    coroutines and asynchronous iterators. Cancelling a call closes its connection, and the server drops its work."""

    _transports = httpx.AsyncClient

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _send(self, describe: Callable[[], Call[Result]]) -> Result:
        call = describe()
        attempts = self._attempts(call)
        while True:
            try:
                request = call.request(self._http, *begin(attempts))
                with client_errors(request):
                    response = await self._http.send(request)
                return call.read(response)
            except ClientError as error:
                wait = pause(attempts, error)
            await asyncio.sleep(wait)

    async def _all(self, describe: Callable[[], Calls[Result]]) -> AsyncIterator[Result | ClientError]:
        calls = describe()
        places = asyncio.Semaphore(calls.concurrency)
        submitted = (asyncio.create_task(self._outcome(call, places)) for call in calls)
        with closing(ahead(submitted, calls.concurrency)) as outcomes:
            for outcome in outcomes:
                yield await outcome

    async def _outcome(self, describe: Callable[[], Call[Result]], places: asyncio.Semaphore) -> Result | ClientError:
        async with places:
            try:
                return await self._send(describe)
            except ClientError as error:
                return error
