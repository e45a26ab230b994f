"""What callers share: room and threads, of which nobody takes so much that the others get nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeVar

from unprm.errors import Overloaded

T = TypeVar("T")


def share_of(caller: str, client: tuple[str, int] | None) -> str:
    """Whose share a request counts for: the named caller's; without a name, that of the address it came from.

    Of an IPv6 address the first 64 bits count: the others are chosen by whoever has it.
    """
    if caller or client is None:
        return caller
    try:
        address = ip_address(client[0])
    except ValueError:  # a socket without an address
        return ""
    if isinstance(address, IPv6Address):
        return f"{address.ipv4_mapped}/32" if address.ipv4_mapped else f"{address.exploded[:19]}::/64"
    return f"{address}/32"  # with a character that no caller's name has


class Budget:
    """Room for `limit` of something, `noun` in errors. A caller that takes more may then hold at most as much as is
    left free, so that one caller has half of it, and there is always some for the next.

    The rule is that of dynamic thresholds in switches (Choudhury and Hahne, 1998).
    """

    def __init__(self, limit: int, noun: str) -> None:
        self._limit = limit
        self._noun = noun
        self._taken = 0
        self._held: Counter[str] = Counter()

    @contextmanager
    def holding(self, caller: str) -> Iterator[Callable[[int], None]]:
        """What takes room for a caller until the end of the block; it raises `Overloaded` where that is too much."""
        held = 0

        def hold(amount: int) -> None:
            nonlocal held
            free = self._limit - self._taken
            if self._held[caller] + amount > free:
                demand = f"{self._held[caller]} {self._noun} of this caller are worked on, and {amount} more"
                raise Overloaded(f"{demand} would be more than what is free, {free} of {self._limit}", 1.0)
            self._taken += amount
            self._held[caller] += amount
            held += amount

        try:
            yield hold
        finally:
            self._taken -= held
            self._held[caller] -= held
            if not self._held[caller]:
                del self._held[caller]


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits for a thread; `before`: the cost of those that its request had before."""

    caller: str
    before: int
    cost: int
    function: Callable[[], Any]
    result: "asyncio.Future[Any]"


class FairPool:
    """Threads for calls that callers share by what these cost, in whatever unit.

    The next call is that of the caller who had least, and among that caller's requests of the one that had least: so
    what is small waits for the calls that run, and for no others. Used from one event loop.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._size = self._free = threads
        self._waiting: list[_Call] = []
        self._had: dict[str, int] = {}
        self._least = 0
        """What a new caller counts as having had: as much as the last one whose turn it was."""

    def request(self, caller: str) -> "Turns":
        """The calls of a request."""
        return Turns(self, caller)

    def close(self) -> None:
        """Ends the threads, after the calls that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, call: _Call) -> Any:
        """Waits for a turn and for the call. Cancelled before its turn, a call never runs."""
        self._waiting.append(call)
        self._begin()
        try:
            return await call.result
        finally:
            if call in self._waiting:
                self._waiting.remove(call)

    def _begin(self) -> None:
        while self._free and self._waiting:
            call = min(self._waiting, key=lambda waiting: (self._standing(waiting.caller), waiting.before))
            self._waiting.remove(call)
            self._least = self._standing(call.caller)
            self._had[call.caller] = self._least + call.cost
            self._had = {caller: had for caller, had in self._had.items() if had > self._least}
            self._free -= 1
            running = call.result.get_loop().run_in_executor(self._threads, call.function)
            running.add_done_callback(partial(self._ended, call))

    def _standing(self, caller: str) -> int:
        return max(self._had.get(caller, 0), self._least)

    def _ended(self, call: _Call, running: "asyncio.Future[Any]") -> None:
        self._free += 1
        if self._free == self._size and not self._waiting:
            self._had.clear()
        self._begin()
        error = None if running.cancelled() else running.exception()
        if call.result.done():  # its caller is gone
            return
        if running.cancelled():
            call.result.cancel()
        elif error is not None:
            call.result.set_exception(error)
        else:
            call.result.set_result(running.result())


class Turns:
    """The calls that one request makes in a pool, one after the other."""

    def __init__(self, pool: FairPool, caller: str) -> None:
        self._pool = pool
        self._caller = caller
        self._had = 0

    async def run(self, cost: int, function: Callable[[], T]) -> T:
        """The result of a call that costs so much, or what it raised."""
        loop = asyncio.get_running_loop()
        call = _Call(self._caller, self._had, cost, function, loop.create_future())
        self._had += cost
        result: T = await self._pool.run(call)
        return result
