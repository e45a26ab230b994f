"""The common parts of both clients, without input or output: time limits, retries and the order of many calls."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from unprm_client import errors

URL = "http://127.0.0.1:8000"
SECONDS = 60.0
ATTEMPTS = 5
LIMITS = httpx.Limits()
"""No limit of connections, where httpx would stop at 100: who calls decides how much is in flight for the server."""
_FIRST_WAIT = 0.25
"""Maximum seconds before the second attempt; doubled for each further one."""
_LONGEST_WAIT = 15.0
_GRACE = 1.0
"""Seconds to wait after the deadline for the server's answer that it has passed."""
_AHEAD = 4
"""Maximum calls submitted but not yet returned to the caller, as a multiple of `concurrency`."""


class Attempts:
    """The attempts of one call, at most `maximum`, until its time is up. `now` is a clock in seconds, `jitter` is in
    [0, 1)."""

    def __init__(
        self,
        seconds: float,
        maximum: int = ATTEMPTS,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._maximum, self._now, self._jitter = maximum, now, jitter
        self._seconds, self._until = seconds, now() + seconds
        self._made = 0

    def begin(self) -> tuple[dict[str, str], float]:
        """Headers that tell the server the deadline of the next attempt, and seconds to wait for its answer."""
        left = self._until - self._now()
        if left <= 0:
            raise errors.DeadlineExceeded.saying(f"the call was not answered within its {self._seconds:g} s")
        self._made += 1
        return {"X-Request-Timeout": f"{left:.3f}"}, left + _GRACE

    def pause(self, error: errors.ClientError) -> float:
        """Seconds before the next attempt. Raises the error if there is none: it would change nothing, or there is no
        attempt or time left. Repeating scores and votes is safe."""
        if self._made >= self._maximum or not isinstance(error, errors.ConnectionFailed | errors.TryAgain):
            raise error
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._made - 1)) * self._jitter()
        if isinstance(error, errors.TryAgain) and error.retry_after is not None:
            wait += error.retry_after  # not before the server said, and not all clients at the same moment
        if self._now() + wait >= self._until:
            raise error
        return wait


@contextmanager
def client_errors(request: httpx.Request) -> Iterator[None]:
    """Turns httpx's errors into the clients' errors, which name the server's address."""
    server = errors.server_at(request.url)
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise errors.ConnectionFailed(f"{server} did not take the connection in time") from error
    except httpx.TimeoutException as error:
        seconds = request.extensions["timeout"]["read"]
        raise errors.DeadlineExceeded.saying(f"{server} did not answer within {seconds:.1f} s") from error
    except httpx.ConnectError as error:
        raise errors.ConnectionFailed(f"{server} can't be reached: {error}") from error
    except httpx.HTTPError as error:
        raise errors.ConnectionFailed(f"{server}: {type(error).__name__}: {error}") from error


_Pending = TypeVar("_Pending", bound="Future[Any] | asyncio.Future[Any]")


def ahead(calls: Iterator[_Pending], concurrency: int) -> Generator[_Pending, None, None]:
    """The calls in their order. To take one from `calls` submits it, which happens in advance; closing this generator
    cancels those that are left."""
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
