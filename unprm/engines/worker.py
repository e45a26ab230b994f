"""A thread for blocking calls that an event loop awaits."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Tell = Callable[[], None]
"""Reports the outcome of a call to the event loop."""


class Worker:
    """One daemon thread that runs calls in order; a call that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], Tell] | None] = SimpleQueue()
        self._working = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, including one whose caller has left."""
        return self._working or not self._calls.empty()

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raised. Cancelling the caller does not stop a call that runs."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put(partial(_call, function, loop, future))
        return await future

    def close(self) -> None:
        """Ends the thread after the waiting calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._working = True
            tell = call()
            self._working = False  # before the caller is told
            tell()
            del call, tell  # frees what they hold: the next call may come much later


def _call(function: Callable[[], T], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]") -> Tell:
    settle: Callable[[Any], None]
    outcome: object
    try:
        settle, outcome = future.set_result, function()
    except StopIteration as error:  # a future refuses StopIteration, and would never be settled
        settle, outcome = future.set_exception, RuntimeError(repr(error))
    except BaseException as error:  # even a library's SystemExit must not end the thread
        settle, outcome = future.set_exception, error
    return partial(_tell, loop, future, settle, outcome)


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Any]",
    settle: Callable[[Any], None],
    outcome: object,
) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is waiting
        loop.call_soon_threadsafe(_settle, future, settle, outcome)


def _settle(future: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: object) -> None:
    if not future.done():  # done if the caller was cancelled
        settle(outcome)
