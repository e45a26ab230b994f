"""Threads that callers share, so that none takes all."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Payer(Protocol):
    """A request that calls are run for: its caller's `share`, and the cost that it has `spent` so far."""

    share: str
    spent: int


@dataclass(eq=False, slots=True)
class _Waiting:
    """A call that waits for a thread; `before`: what its request had spent earlier; `turn` is done at its turn."""

    share: str
    before: int
    cost: int
    turn: "asyncio.Future[None]"


class FairPool:
    """Threads that callers share by the cost of their calls, in any unit.

    The next call is that of the caller with the least cost so far and, among that caller's requests, of the one that
    has spent least: small work waits only for the running calls. Used from one event loop.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._size = self._free = threads
        self._waiting: list[_Waiting] = []
        self._spent: dict[str, int] = {}
        self._floor = 0
        """Cost that a new caller starts with: that of the last caller served, before its call."""

    def close(self) -> None:
        """Ends the threads after the running calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, payer: Payer, cost: int, function: Callable[[], T]) -> T:
        """Waits for a turn, then for the call; returns its result or raises its error. A call cancelled before its turn
        never runs; one cancelled later runs to its end and keeps its thread."""
        loop = asyncio.get_running_loop()
        call = _Waiting(payer.share, payer.spent, cost, loop.create_future())
        payer.spent += cost
        self._waiting.append(call)
        self._begin()
        try:
            await call.turn
        except asyncio.CancelledError:
            if not call.turn.cancelled():  # it was its turn already
                self._end()
            raise
        running = loop.run_in_executor(self._threads, function)
        running.add_done_callback(lambda _: self._end())
        return await asyncio.shield(running)

    def _begin(self) -> None:
        while self._free and self._waiting:
            call = min(self._waiting, key=lambda waiting: (self._standing(waiting.share), waiting.before))
            self._waiting.remove(call)
            if call.turn.cancelled():
                continue
            self._floor = self._standing(call.share)
            self._spent[call.share] = self._floor + call.cost
            self._spent = {share: spent for share, spent in self._spent.items() if spent > self._floor}
            self._free -= 1
            call.turn.set_result(None)

    def _standing(self, share: str) -> int:
        return max(self._spent.get(share, 0), self._floor)

    def _end(self) -> None:
        self._free += 1
        self._begin()
        if self._free == self._size:
            self._spent.clear()
