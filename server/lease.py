"""The one place where a request is let in or refused, and where it gives everything back.

`Admission` is what the requests of one server share. A `Lease` is one request: what is known of it, its time, its
caller's share of every limit, and what it holds. Leaving `Lease.admitted` releases that, however the request ends.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.types import Scope

from unprm.election.acceptance import ElectionRecord
from unprm.errors import DeadlineExceeded, ShuttingDown
from unprm.fair_shares import Capacity, FairQueue, Quota, Reservation
from unprm.types import Usage

LEASE = "unprm.lease"
"""Key of the lease in a request's scope."""
BODIES = 32
"""Bodies and answers in flight may total this many maximum-size bodies."""
SMALL = 32_768
"""Up to this many bytes are read at once: handing them to a thread would take longer."""
_THREADS = 4
"""Threads that read and encode texts: while long texts occupy some, others are free."""
_HURRIED = 0.5
"""A time limit below this fraction of the server's is the caller's responsibility if it does not suffice. (A patient
client always sends a little less than the limit.)"""

T = TypeVar("T")


class UseCount:
    """Counts the blocks in which something is used; `ended` is set while there are none."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = asyncio.Event()
        self.ended.set()

    def __enter__(self) -> None:
        self.count += 1
        self.ended.clear()

    def __exit__(self, *raised: object) -> None:
        self.count -= 1
        if self.count == 0:
            self.ended.set()


class Admission:
    """What the requests of one server share. `bodies`: bytes of bodies and answers, held until the answers are written,
    and of an upstream's answers, held while they are read. `running`: the admitted requests. `threads`: what reads and
    encodes long texts."""

    def __init__(self, max_body_bytes: int, threads: int = _THREADS) -> None:
        self.bodies = Capacity(BODIES * max_body_bytes, "bytes")
        self.threads = FairThreads(threads)
        self.running = UseCount()
        self.draining = False
        self.leases: set[Lease] = set()

    def end(self, reason: Exception) -> None:
        """Cancels the requests that are still running, which then raise `reason`."""
        for lease in self.leases:
            lease.end(reason)


@dataclass(eq=False)
class Lease:
    """One request. `arrived`: a time of the event loop's clock; `caller`: the name of the key that was sent; `scope`:
    whose caches it uses; `share`: whose part of every limit it uses; `quota`: its caller's tokens, if they are limited;
    `size`: bytes of the texts to be read for it, which are its body and, in the gateway, what the upstream answers;
    `code`: the error's, if the response is an error, for the log and the metrics; `election`: the one that it held, for
    the journal; `unheard`: names of upstreams that were asked for it and have sent no byte; `response_id`: of the
    gateway's answer; `media_type`: of the response, once it has begun; `spent`: cost of what threads have read for it;
    `charged`: whether it has taken any tokens of the quota.

    Once admitted: `deadline`, a time of the event loop's clock, `seconds` after its arrival; `hurried`: whether the
    caller wants the answer much sooner than the server's limit; `memory`: bytes that it holds until it ends.
    """

    admission: Admission
    request_id: str = ""
    arrived: float = 0.0
    caller: str = ""
    scope: str = ""
    share: str = ""
    quota: Quota | None = None
    body: bytes = b""
    size: int = 0
    solutions: int = 0
    usage: Usage = field(default_factory=Usage)
    code: str = ""
    election: ElectionRecord | None = None
    response_id: str = ""
    media_type: str | None = None
    spent: int = 0
    deadline: float = math.inf
    seconds: float = 0.0
    hurried: bool = False
    charged: bool = False
    unheard: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def admitted(self, seconds: float, limit: float) -> AsyncIterator[None]:
        """Admits the request for `seconds` after its arrival; `limit`: the most that the server allows.

        Raises `QuotaExceeded` if the caller's quota is used up, and `ShuttingDown` while draining. The block is
        cancelled at its deadline and then raises `DeadlineExceeded`, or by `end`, which says what it raises.
        """
        if self.quota is not None:
            self.quota.check()
        if self.admission.draining:
            raise ShuttingDown
        self.deadline, self.seconds, self.hurried = self.arrived + seconds, seconds, seconds < _HURRIED * limit
        self._reason: Exception | None = None
        try:
            async with asyncio.timeout_at(self.deadline) as self._timeout:
                with self.admission.running, self.holding() as self.memory:
                    self.admission.leases.add(self)
                    yield
        except TimeoutError:
            if not self.over:  # a timeout of something inside
                raise
            raise (self._reason or DeadlineExceeded(seconds, self.unheard)) from None
        finally:
            self.admission.leases.discard(self)

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
        return Reservation(self.admission.bodies, self.share)

    @asynccontextmanager
    async def reserving(self, tokens: int) -> AsyncIterator[Callable[[int], None]]:
        """Takes tokens from the caller's quota before they are used. Yields a function that gets the number of those
        that were; the difference is given back at the end. Unless it was called, a failure gives back all, but a
        cancellation none: nobody knows what had been used by then. Raises `QuotaExceeded` if others have used up the
        quota."""
        used: int | None = None

        def use(number: int) -> None:
            nonlocal used
            used = number

        if self.quota is not None and not self.charged:
            self.quota.check()
        self.charge(tokens)
        try:
            yield use
        except Exception:  # any failure but a cancellation: what was not told was not used
            used = used or 0
            raise
        finally:
            if used is not None:
                self.charge(used - tokens)

    def charge(self, tokens: int) -> None:
        """Takes tokens from the caller's quota, or gives back a negative number of them."""
        self.charged = True
        if self.quota is not None:
            self.quota.charge(tokens)

    async def read(self, function: Callable[[], T], size: int | None = None, small: int = SMALL) -> T:
        """Runs a function on `size` bytes, by default on all texts of the request: at once if these are at most
        `small`, else in threads, in the caller's turn."""
        size = self.size if size is None else size
        return function() if size <= small else await self.admission.threads.run(self, size, function)


def lease_of(scope: Scope) -> Lease:
    lease: Lease = scope[LEASE]
    return lease


async def _lease(request: Request) -> Lease:  # async: FastAPI would otherwise call it in a thread
    return lease_of(request.scope)


TheLease = Annotated[Lease, Depends(_lease)]
"""The request's lease, as a parameter of an endpoint."""


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


class FairThreads:
    """Threads that callers share by the cost of their calls, in any unit; of a caller's requests the one that has spent
    least is first. So small work waits only for the running calls. Used from one event loop."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, "texts")
        self._size = self._free = threads
        self._waiting = FairQueue[_Call]()

    def close(self) -> None:
        """Ends the threads after the running calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, lease: Lease, cost: int, function: Callable[[], T]) -> T:
        """Waits for a turn, then for the call; returns its result or raises its error. A call cancelled before its turn
        never runs; one cancelled later runs to its end and keeps its thread."""
        loop = asyncio.get_running_loop()
        call = _Call(lease.share, lease.spent, cost, loop.create_future())
        lease.spent += cost
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
