"""Places for work of which only so much is done at a time, shared fairly among callers."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


class Slots:
    """Runs work in an executor, `count` pieces at a time. Next is the caller with the fewest at work, of several the
    one that was served longest ago, and of its pieces the first that came. All state lives on the event loop."""

    def __init__(self, executor: Executor, count: int) -> None:
        self._executor = executor
        self._free = count
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # those that were served longest ago come first

    async def run(self, caller: str, work: Callable[[], Result]) -> Result:
        """The result of the work. A slot is free again once the work is done, also if nobody waits for it any more."""
        await self._taken(caller)
        loop = asyncio.get_running_loop()

        def done(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended before the work
                loop.call_soon_threadsafe(self._release, caller)

        try:
            running = self._executor.submit(work)
        except BaseException:
            self._release(caller)
            raise
        running.add_done_callback(done)
        return await asyncio.wrap_future(running)

    async def _taken(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            self._working[caller] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was this one's turn already
                self._release(caller)
            raise

    def _release(self, caller: str) -> None:
        self._working[caller] -= 1
        self._free += 1
        while self._free and self._waiting:
            self._serve(min(self._waiting, key=self._working.__getitem__))
        self._working = +self._working  # forgets who has nothing at work

    def _serve(self, caller: str) -> None:
        turns = self._waiting.pop(caller)
        turn = turns.popleft()
        if turns:
            self._waiting[caller] = turns
        if not turn.cancelled():
            self._free -= 1
            self._working[caller] += 1
            turn.set_result(None)
