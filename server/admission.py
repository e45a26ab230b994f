"""Admission: the one place where a request is let in or refused, and where it gives everything back.

`Admission` belongs to the server, `Claims` to one request: its time, its caller's share, and what it holds. All limits
that callers share are reached through `Claims`; leaving its block releases them, however the request ends. `Context` is
the request itself.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from starlette.types import Scope

from unprm.election.acceptance import ElectionRecord
from unprm.errors import DeadlineExceeded, ShuttingDown
from unprm.fair_shares import Capacity, FairQueue, Quota, Reservation
from unprm.types import Usage

CONTEXT = "unprm.context"
"""Key of the context in a request's scope."""
BODIES = 32
"""Bodies and answers in flight may total this many maximum-size bodies."""
_HURRIED = 0.5
"""A time limit below this fraction of the server's is the caller's responsibility if it does not suffice. (A patient
client always sends a little less than the limit.)"""

T = TypeVar("T")


class InUse:
    """Counts the blocks in which something is used."""

    def __init__(self) -> None:
        self.count = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        self.count += 1
        self._unused.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._unused.set()

    async def ended(self) -> None:
        await self._unused.wait()


class Admission:
    """What the requests of one server share. `bodies`: bytes of bodies and answers, held until the answers are written,
    and of an upstream's answers, held while they are read. `running`: the admitted requests."""

    def __init__(self, max_body_bytes: int) -> None:
        self.bodies = Capacity(BODIES * max_body_bytes, "bytes")
        self.running = InUse()
        self.draining = False
        self._admitted: set[Claims] = set()

    @contextmanager
    def entered(self, claims: "Claims") -> Iterator[None]:
        """Counts a request as running until the end of the block. Raises `ShuttingDown` while draining."""
        if self.draining:
            raise ShuttingDown
        self._admitted.add(claims)
        try:
            with self.running.one():
                yield
        finally:
            self._admitted.remove(claims)

    def end(self, reason: Exception) -> None:
        """Cancels the requests that are still running, which then raise `reason`."""
        for claims in self._admitted:
            claims.end(reason)


class Claims:
    """One request's share of the server. `share`: whose part of every limit it uses; `quota`: its caller's tokens, if
    they are limited; `spent`: cost of the calls that threads have run for it, see `FairPool`.

    Once admitted: `deadline`, a time of the event loop's clock, `seconds` after its arrival; `hurried`: whether the
    caller wants the answer much sooner than the server's limit; `memory`: bytes that it holds until it ends.
    """

    def __init__(self, admission: Admission, share: str = "", quota: Quota | None = None) -> None:
        self._admission = admission
        self.share, self.quota = share, quota
        self.spent = 0
        self.deadline = math.inf
        self.seconds = 0.0
        self.hurried = False

    @asynccontextmanager
    async def admitted(self, arrived: float, seconds: float, limit: float) -> AsyncIterator[None]:
        """Admits the request for `seconds` after its arrival; `limit`: the most that the server allows.

        Raises `Overloaded` if the caller's quota is used up, and `ShuttingDown`. The block is cancelled at its deadline
        and then raises `DeadlineExceeded`, or by `end`, which says what it raises.
        """
        if self.quota is not None:
            self.quota.check()
        self.deadline, self.seconds, self.hurried = arrived + seconds, seconds, seconds < _HURRIED * limit
        self._reason: Exception = DeadlineExceeded(seconds)
        try:
            async with asyncio.timeout_at(self.deadline) as self._timeout:
                with self._admission.entered(self), self.holding() as self.memory:
                    yield
        except TimeoutError:
            if not self.over:  # a timeout of something inside
                raise
            raise self._reason from None

    @property
    def over(self) -> bool:
        """Whether the request is cancelled, if only just now."""
        return self._timeout.expired()

    def end(self, reason: Exception) -> None:
        """Cancels the request, which then raises `reason`, unless it is over or is being answered."""
        if self._timeout.when() is not None and not self.over:
            self._reason = reason
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def finish(self) -> None:
        """Lifts the deadline: the answer is complete and takes as long to send as its caller needs."""
        self._timeout.reschedule(None)

    def holding(self) -> Reservation:
        """Takes bytes of memory until the end of the block."""
        return Reservation(self._admission.bodies, self.share)

    def charge(self, tokens: int) -> None:
        """Takes tokens from the caller's quota, or gives back a negative number of them."""
        if self.quota is not None:
            self.quota.charge(tokens)


@dataclass(slots=True)
class Context:
    """One request. `arrived`: a time of the event loop's clock; `claims`: what it may use and holds; `caller`: the name
    of the key that was sent; `scope`: whose caches it uses; `code`: the error's, if the response is an error, for the
    log and the metrics; `size`: bytes of the texts to be read for it, which are its body and, in the gateway, what the
    upstream answers; `election`: the one that it held, for the journal; `response_id`: of the gateway's answer;
    `media_type`: of the response, once it has begun."""

    request_id: str
    arrived: float
    claims: Claims
    caller: str = ""
    scope: str = ""
    body: bytes = b""
    size: int = 0
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""
    election: ElectionRecord | None = None
    response_id: str = ""
    media_type: str | None = None


def context_of(scope: Scope) -> Context:
    return cast(Context, scope[CONTEXT])


async def _context(request: Request) -> Context:  # async: FastAPI would otherwise call it in a thread
    return context_of(request.scope)


TheContext = Annotated[Context, Depends(_context)]
"""The request's context, as a parameter of an endpoint."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits for a thread; `rank`: what its request had spent earlier; `turn` is done at its turn."""

    caller: str
    rank: int
    cost: int
    turn: "asyncio.Future[None]"

    @property
    def waits(self) -> bool:
        return not self.turn.done()


class FairPool:
    """Threads that callers share by the cost of their calls, in any unit; of a caller's requests the one that has spent
    least is first. So small work waits only for the running calls. Used from one event loop."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._size = self._free = threads
        self._waiting = FairQueue[_Call]()

    def close(self) -> None:
        """Ends the threads after the running calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, claims: "Claims", cost: int, function: Callable[[], T]) -> T:
        """Waits for a turn, then for the call; returns its result or raises its error. A call cancelled before its turn
        never runs; one cancelled later runs to its end and keeps its thread."""
        loop = asyncio.get_running_loop()
        call = _Call(claims.share, claims.spent, cost, loop.create_future())
        claims.spent += cost
        self._waiting.add(call)
        self._offer_threads()
        try:
            await call.turn
        except asyncio.CancelledError:
            if not call.turn.cancelled():  # it was its turn already
                self._offer_threads(1)
            raise
        running = loop.run_in_executor(self._threads, function)
        running.add_done_callback(lambda _: self._offer_threads(1))
        return await asyncio.shield(running)

    def _offer_threads(self, freed: int = 0) -> None:
        self._free += freed
        if self._free:
            self._waiting.offer_turns(self._accept)
        if self._free == self._size:  # nobody waits, and what was used before does not count
            self._waiting = FairQueue()

    def _accept(self, call: _Call) -> int | None:
        if not self._free or not call.waits:
            return None
        self._free -= 1
        call.turn.set_result(None)
        return call.cost
