"""A thread for blocking calls that an event loop awaits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """One daemon thread that runs calls in order; a call that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, including one whose caller has left."""
        return self._last is not None and not self._last.done()

    async def call(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raised. Cancelling the caller stops no call, also none that waits."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._last = future
        self._calls.put((function, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Ends the thread after the waiting calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                future.set_result(function())
            except StopIteration as error:  # asyncio's futures refuse it, and their caller would wait for ever
                future.set_exception(RuntimeError(repr(error)))
            except BaseException as error:  # even a library's SystemExit must not end the thread
                future.set_exception(error)
            del call, function, future  # frees what they hold: the next call may come much later
