"""The requests of a model's queue, and a batch of their items: a prefix that items share, or that the engine has
cached, is run once."""

import asyncio
from bisect import bisect
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import NamedTuple

from unprm.fair_shares import Reservation
from unprm.types import Encoded, StepScores, Usage


class ScoredItems(NamedTuple):
    """Step scores in the order of the request's items, and what they cost."""

    scores: list[StepScores]
    usage: Usage


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The items that a caller has scored together.

    `reservation`: the tokens of those items that no batch has taken; `taken` have been. `arrived`, and `begun`, when
    the first batch began: times of the queue's clock. `deadline`: a time of the event loop's clock. `rank`: number of
    the last batch that took any of the items, or of the one before the arrival. `scores`: of the items scored so far,
    by their indices. `trace`: the caller's context variables, as a trace's current span.
    """

    items: Sequence[Encoded]
    deadline: float
    caller: str
    arrived: float
    reservation: Reservation
    done: "asyncio.Future[ScoredItems]"
    rank: int
    begun: float = 0.0
    taken: int = 0
    scores: dict[int, StepScores] = field(default_factory=dict)
    trace: Context = field(default_factory=copy_context)

    @property
    def waits(self) -> bool:
        """Whether a batch may take the next item."""
        return self.taken < len(self.items) and not self.done.done() and self.deadline > self.done.get_loop().time()


class Batch:
    """Distinct items of at most `room` tokens, or a single longer one; equal items run once. `items`: for each the
    requests that have it, and its index among their items.

    `new_tokens`: tokens of an item that the engine would run, if it runs a prefix once for all items of a batch and of
    earlier ones; `read` other tokens cost as much as a new one. Without it all tokens are run.
    """

    READ = 8
    """Known tokens that a CPU reads in the time in which it runs a new one; a GPU reads far more."""

    def __init__(self, room: int, new_tokens: Callable[[Encoded], int] | None = None, read: int = READ) -> None:
        self.room = room
        self.items: dict[Encoded, list[tuple[QueuedRequest, int]]] = {}
        self._new_tokens, self._read = new_tokens, read
        self._sorted: list[tuple[str, tuple[int, ...]]] = []  # so an item's longest prefix is one of its neighbours'

    def add(self, item: Encoded, spared: int = 0) -> int | None:
        """Adds an item and returns its cost; None if less than `spared` tokens of the room would be left."""
        if item in self.items:
            return 0
        cost, room = item.cost, self.room - spared
        if self.items and room <= 0:
            return None
        key = item.scope, item.ids
        if self._new_tokens is not None:
            place = bisect(self._sorted, key)
            near = self._sorted[max(0, place - 1) : place + 1]
            shared = max((common(item.ids, ids) for scope, ids in near if scope == item.scope), default=0)
            new = min(len(item.ids) - shared, self._new_tokens(item))
            cost = new + (len(item.ids) - new) // self._read
        if self.items and cost > room:
            return None
        if self._new_tokens is not None:
            self._sorted.insert(place, key)
        self.room -= cost
        self.items[item] = []
        return cost


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix, by halves: slices are compared fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
