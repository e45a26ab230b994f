"""The common parts of both clients, without input or output: time limits, retries and the order of many calls."""

import asyncio
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from unprm.retries import Attempts
from unprm_client import errors

URL = "http://127.0.0.1:8000"
SECONDS = 60.0
ATTEMPTS = 5
LIMITS = httpx.Limits()
"""No limit of connections, where httpx would stop at 100: who calls decides how much is in flight for the server."""
_GRACE = 1.0
"""Seconds to wait after the deadline for the server's answer that it has passed."""
_AHEAD = 4
"""Maximum calls submitted but not yet returned to the caller, as a multiple of `concurrency`."""


def begin(attempts: Attempts) -> tuple[dict[str, str], float]:
    """Headers that tell the server the deadline of the next attempt of a call, and seconds to wait for its answer."""
    if (left := attempts.left) <= 0:
        raise errors.DeadlineExceeded.saying(f"the call was not answered within its {attempts.seconds:g} s")
    return {"X-Request-Timeout": f"{left:.3f}"}, left + _GRACE


def pause(attempts: Attempts, error: errors.ClientError) -> float:
    """As `Attempts.pause`. Repeating scores and votes is safe."""
    again = isinstance(error, errors.ConnectionFailed | errors.TryAgain)
    return attempts.pause(error, again=again, retry_after=getattr(error, "retry_after", None))


@contextmanager
def client_errors(request: httpx.Request) -> Iterator[None]:
    """Turns httpx's errors into the clients' errors, which name the server's URL."""
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
