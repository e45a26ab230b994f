"""A caller's share of what is limited: nobody takes more than it leaves to others, and whoever has had least is next.

`Capacity` is held for a while, as memory; a `FairQueue` deals out what is used up, as a thread's time; a `Quota` is a
rate.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from unprm.errors import Overloaded, QuotaExceeded


class Capacity:
    """`limit` units, called `noun` in errors. A caller may hold at most as much as then stays free: one alone gets
    half, the next half of the rest (dynamic thresholds, Choudhury and Hahne, 1998).

    An amount counts as half of the limit at most, so that any is taken when nothing is held. `wait`: seconds until
    units may be free again.
    """

    def __init__(self, limit: int, noun: str, wait: Callable[[int], float] = lambda missing: 1.0) -> None:
        self.limit, self.noun, self.wait = limit, noun, wait
        self.held, self.taken = Counter[str](), 0
        """Units by caller, and of all callers."""


class Reservation:
    """The `amount` of a capacity that a caller's request holds, until the end of the block."""

    def __init__(self, capacity: Capacity, caller: str) -> None:
        self._capacity, self._caller = capacity, caller
        self.amount = 0

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *raised: object) -> None:
        self.set(0)

    def take(self, amount: int) -> None:
        capacity = self._capacity
        counted, held = min(amount, capacity.limit // 2), capacity.held[self._caller]
        left = capacity.limit - capacity.taken - counted
        if held + counted > left:
            demand = f"{held} {capacity.noun} of this caller wait or are worked on, and {counted} more"
            detail = f"{demand} would be more than what is left for others, {max(left, 0)} of {capacity.limit}"
            raise Overloaded(detail, capacity.wait(held + counted - left))
        self.set(self.amount + amount)

    def set(self, amount: int) -> None:
        """Holds this much from now on, without a check: what was let in may turn out larger, and becomes less."""
        held, half = self._capacity.held, self._capacity.limit // 2
        change = min(amount, half) - min(self.amount, half)
        self.amount = amount
        self._capacity.taken += change
        held[self._caller] += change
        if not held[self._caller]:
            del held[self._caller]


class Waiter(Protocol):
    """An entry of a `FairQueue`. `rank`: the order among the entries of one caller, such as a past cost or time."""

    caller: str
    rank: int

    @property
    def waits(self) -> bool:
        """Whether the entry still waits for a turn."""


W = TypeVar("W", bound=Waiter)


class FairQueue(Generic[W]):
    """Entries by arrival; the next turn is of the caller with the least cost so far. Who comes, or comes back, starts
    where the caller in turn stands (start-time fair queuing, Goyal et al., 1996)."""

    def __init__(self) -> None:
        self._entries: list[W] = []
        self._costs: dict[str, int] = {}
        self._least = 0
        """Where the caller in turn stands."""

    def __iter__(self) -> Iterator[W]:
        """The entries that still wait; the others are dropped."""
        self._entries = [entry for entry in self._entries if entry.waits]
        return iter(self._entries)

    def add(self, entry: W) -> None:
        self._entries.append(entry)

    def offer_turns(self, accept: Callable[[W], int | None]) -> None:
        """Offers turns, one after another, until nobody accepts. `accept` returns the cost of an accepted turn."""
        entries: dict[str, deque[W]] = {}
        for entry in sorted(self, key=attrgetter("rank")):
            entries.setdefault(entry.caller, deque()).append(entry)
        callers = [(self._stands(caller), number, caller) for number, caller in enumerate(entries)]
        heapify(callers)
        while callers:
            stands, number, caller = heappop(callers)
            entry = entries[caller].popleft()
            if (cost := accept(entry)) is not None:
                self._least = stands
                self.charge(caller, cost)
                entries[caller].append(entry)
            if entries[caller]:
                heappush(callers, (self._stands(caller), number, caller))
        self._costs = {caller: cost for caller, cost in self._costs.items() if cost > self._least}

    def charge(self, caller: str, cost: int) -> None:
        """Adds the cost of a turn that was not offered."""
        self._costs[caller] = self._stands(caller) + cost

    def _stands(self, caller: str) -> int:
        return max(self._costs.get(caller, 0), self._least)


class Quota:
    """Tokens of a caller: `per_minute` at once, and as many again each minute; what is used beyond is owed."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left, self._then = float(per_minute), clock()

    def check(self) -> None:
        """Raises `QuotaExceeded` if none are left."""
        self.charge(0)
        if self._left <= 0:
            detail = f"the {self.per_minute} tokens a minute of this key are used up"
            raise QuotaExceeded(detail, (1 - self._left) * 60 / self.per_minute)

    def charge(self, tokens: int) -> None:
        """Takes tokens, or gives back a negative number of them."""
        now = self._clock()
        earned = (now - self._then) * self.per_minute / 60
        self._left, self._then = min(self.per_minute, self._left + earned) - tokens, now
