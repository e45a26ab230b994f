"""Whose share a request uses, its quota of tokens, and threads that callers share, so that none takes all."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TypeVar

from unprm.errors import Overloaded

T = TypeVar("T")


def share_of(caller: str, client: tuple[str, int] | None) -> str:
    """The share that a request counts against: the named caller's; without a name, that of its client address.

    Only the first 64 bits of an IPv6 address count: its owner chooses the others.
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


class Quota:
    """Tokens that a caller may use: `per_minute` at once, and as many again each minute. Requests are let in while some
    are left; what they use beyond is owed, and paid back before the next. `clock`: in seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left, self._then = float(per_minute), clock()

    def check(self) -> None:
        """Raises `Overloaded` if none are left."""
        self.charge(0)
        if self._left <= 0:
            detail = f"the {self.per_minute} tokens a minute of this key are used up"
            raise Overloaded(detail, (1 - self._left) * 60 / self.per_minute)

    def charge(self, tokens: int) -> None:
        """Takes tokens, or gives back a negative number of them."""
        now = self._clock()
        earned = (now - self._then) * self.per_minute / 60
        self._left, self._then = min(self.per_minute, self._left + earned) - tokens, now


class InUse:
    """Counts the blocks in which something is used."""

    def __init__(self) -> None:
        self.count = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts as a use until the end of the block."""
        self.count += 1
        self._unused.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._unused.set()

    async def ended(self) -> None:
        """Waits until it is not in use."""
        await self._unused.wait()


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits for a thread; `before`: the cost of its request's earlier calls; `turn` is done at its turn."""

    caller: str
    before: int
    cost: int
    turn: "asyncio.Future[None]"


class FairPool:
    """Threads that callers share by the cost of their calls, in any unit.

    The next call is that of the caller with the least cost so far and, among that caller's requests, of the one with
    the least: small work waits only for the running calls. Used from one event loop.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._size = self._free = threads
        self._waiting: list[_Call] = []
        self._had: dict[str, int] = {}
        self._least = 0
        """Cost that a new caller starts with: that of the last caller served, before its call."""

    def request(self, caller: str) -> "Turns":
        """Turns for the calls of a request."""
        return Turns(self, caller)

    def close(self) -> None:
        """Ends the threads after the running calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, caller: str, before: int, cost: int, function: Callable[[], T]) -> T:
        """Waits for a turn, then for the call; `before`: the cost of its request's earlier calls. A call cancelled
        before its turn never runs; one cancelled later runs to its end and keeps its thread."""
        loop = asyncio.get_running_loop()
        call = _Call(caller, before, cost, loop.create_future())
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
            call = min(self._waiting, key=lambda waiting: (self._standing(waiting.caller), waiting.before))
            self._waiting.remove(call)
            if call.turn.cancelled():
                continue
            self._least = self._standing(call.caller)
            self._had[call.caller] = self._least + call.cost
            self._had = {caller: had for caller, had in self._had.items() if had > self._least}
            self._free -= 1
            call.turn.set_result(None)

    def _standing(self, caller: str) -> int:
        return max(self._had.get(caller, 0), self._least)

    def _end(self) -> None:
        self._free += 1
        self._begin()
        if self._free == self._size:
            self._had.clear()


class Turns:
    """The calls that one request makes in a pool, one after the other."""

    def __init__(self, pool: FairPool, caller: str) -> None:
        self._pool = pool
        self._caller = caller
        self._had = 0

    async def run(self, cost: int, function: Callable[[], T]) -> T:
        """Runs a call of this cost; returns its result or raises its error."""
        before = self._had
        self._had += cost
        return await self._pool.run(self._caller, before, cost, function)
