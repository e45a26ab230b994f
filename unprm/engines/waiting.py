"""The requests that wait for a model, and which of their items are next.

Half of a batch goes in turns to the callers and to the requests of each, the other half to the oldest requests: a large
request neither waits for the rest nor holds it up.
"""

import asyncio
from bisect import bisect, insort
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from unprm.shares import Held, Turns
from unprm.types import Encoded, StepScores, Usage


class ScoredItems(NamedTuple):
    """Step scores in the order of the request's items, and what they cost."""

    scores: list[StepScores]
    usage: Usage


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The items that a caller has scored together.

    `taken` of them have left the queue; the others have `tokens` tokens, which hold `room`. `arrived`, and `begun`,
    when its first batch began: times of the scheduler's clock. `deadline`: a time of the event loop's clock.
    `caller`: requests of one caller share its turns.
    `rank`: number of the last batch that took any of its items, or of the one before its arrival. `scores`: of the
    items scored so far, by their indices. `trace`: its caller's context variables, as a trace's current span.
    """

    items: Sequence[Encoded]
    deadline: float | None
    caller: str
    arrived: float
    room: Held
    done: "asyncio.Future[ScoredItems]"
    begun: float | None = None
    rank: int = 0
    taken: int = 0
    tokens: int = 0
    scores: dict[int, StepScores] = field(default_factory=dict)
    trace: Context = field(default_factory=copy_context)

    def scored(self, now: float) -> ScoredItems:
        """The answer, once all items have scores; `now` by the scheduler's clock."""
        assert self.begun is not None, "it has scores"
        scores = [self.scores[index] for index in range(len(self.items))]
        usage = Usage.of(scores)
        queued, took = 1000 * (self.begun - self.arrived), 1000 * (now - self.begun)
        return ScoredItems(scores, replace(usage, queue_ms=queued, scoring_ms=took))


Batch = dict[Encoded, list[tuple[QueuedRequest, int]]]
"""Distinct sequences; for each the requests that have it, and its index among their items. Equal ones run once."""


class BatchCost:
    """Cost of a batch's items in tokens. `new_tokens`: those of an item that the engine would run, if it runs a prefix
    once for all items of a batch and of earlier ones; `read` other tokens cost as much as a new one. Without it all
    tokens are run."""

    READ = 8
    """Known tokens that a CPU reads in the time in which it runs a new one; a GPU reads far more."""

    def __init__(self, new_tokens: Callable[[Encoded], int] | None, read: int = READ) -> None:
        self._new_tokens, self._read = new_tokens, read
        self._items: list[tuple[str, tuple[int, ...]]] = []  # sorted, so an item's longest prefix is its neighbours'

    def of(self, item: Encoded) -> int:
        """Cost of an item that is not in the batch yet."""
        if self._new_tokens is None:
            return item.cost
        place = bisect(self._items, (item.scope, item.ids))
        near = self._items[max(0, place - 1) : place + 1]
        shared = max((common(item.ids, ids) for scope, ids in near if scope == item.scope), default=0)
        new = min(len(item.ids) - shared, self._new_tokens(item))
        return new + (len(item.ids) - new) // self._read

    def add(self, item: Encoded) -> int:
        """Adds an item to the batch; returns its cost."""
        cost = self.of(item)
        insort(self._items, (item.scope, item.ids))
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


class Waiting:
    """Requests with items that no batch has taken yet, by arrival; `tokens`: of all these items."""

    def __init__(self) -> None:
        self.tokens = 0
        self._requests: dict[QueuedRequest, None] = {}  # a set would not keep the order
        self._batches = 0
        self._turns = Turns()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: QueuedRequest) -> None:
        """Puts a request at the end. It comes before those of which the running batch took any."""
        request.rank = self._batches - 1
        self._requests[request] = None
        self._set_tokens(request, sum(item.cost for item in request.items))

    def remove(self, request: QueuedRequest) -> None:
        """Removes a request's waiting items, if any."""
        if request in self._requests:
            del self._requests[request]
            self._set_tokens(request, 0)

    def expired(self, now: float) -> list[QueuedRequest]:
        """Requests whose deadline is not after `now`, a time of the event loop's clock."""
        return [request for request in self._requests if request.deadline is not None and request.deadline <= now]

    def take(self, tokens: int, whole: int = 0, new_tokens: Callable[[Encoded], int] | None = None) -> Batch:
        """The next batch, which costs at most `tokens`; a longer item forms a batch alone. A request that waits alone
        is one batch if its new tokens are at most `whole`. `new_tokens`: as in `BatchCost`."""
        self._batches += 1
        batch: Batch = {}
        costs = BatchCost(new_tokens if self.tokens > tokens else None)
        if self.tokens > tokens and len(self._requests) == 1 and self._is_small(whole, new_tokens):
            tokens = self.tokens
        left = tokens

        def move(request: QueuedRequest, spared: int = 0) -> bool:
            """Moves a request's next item to the batch, unless it has none or there is no room for it."""
            nonlocal left
            if request.taken == len(request.items):
                return False
            item = request.items[request.taken]
            if item not in batch:
                room = max(0, left - spared)
                if batch and (not room or costs.of(item) > room):
                    return False
                cost = costs.add(item)
                left -= cost
                self._turns.charge(request.caller, cost)
            batch.setdefault(item, []).append((request, request.taken))
            request.taken, request.rank = request.taken + 1, self._batches
            self._set_tokens(request, request.tokens - item.cost)
            return True

        self._turns.deal(self._requests, lambda request: move(request, spared=tokens - tokens // 2))
        for request in self._requests:
            while move(request):
                pass
            if request.taken < len(request.items):
                break
        self._requests = {request: None for request in self._requests if request.taken < len(request.items)}
        return batch

    def _is_small(self, whole: int, new_tokens: Callable[[Encoded], int] | None) -> bool:
        """Whether the oldest request has at most so many new tokens, which may take four times as long for what is read
        with them, and no batch has taken any of it but the first of all, which only told the speed."""
        request = next(iter(self._requests))
        costs, total = BatchCost(new_tokens, 4 * BatchCost.READ), 0
        for item in dict.fromkeys(request.items[request.taken :]):
            total += costs.add(item)
            if total > whole:
                return False
        return not request.taken or self._batches == 2

    def _set_tokens(self, request: QueuedRequest, tokens: int) -> None:
        self.tokens += tokens - request.tokens
        request.tokens = tokens
        request.room.set(tokens)
