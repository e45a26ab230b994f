"""The requests that wait for a model, and which of their items are next.

Half of a batch goes to the oldest requests, the other half in turns to the callers and to the requests of each: a
large request neither waits for the rest nor holds it up.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

from unprm.budget import Held
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
    `served`: number of the last batch that took any of its items, or of the one before its arrival. `scores`: of the
    items scored so far, by their indices.
    """

    items: Sequence[Encoded]
    deadline: float | None
    caller: str
    arrived: float
    room: Held
    done: "asyncio.Future[ScoredItems]"
    begun: float | None = None
    served: int = 0
    taken: int = 0
    tokens: int = 0
    scores: dict[int, StepScores] = field(default_factory=dict)

    def scored(self, now: float) -> ScoredItems:
        """The answer, once all items have scores; `now` by the scheduler's clock."""
        assert self.begun is not None, "it has scores"
        scores = [self.scores[index] for index in range(len(self.items))]
        usage = Usage.of(scores)
        queued, took = self.begun - self.arrived, now - self.begun
        return ScoredItems(scores, replace(usage, queue_seconds=queued, scoring_seconds=took))


Batch = dict[Encoded, list[tuple[QueuedRequest, int]]]
"""Distinct sequences; for each the requests that have it, and its index among their items. Equal ones run once."""


class Waiting:
    """Requests with items that no batch has taken yet, by arrival; `tokens`: of all these items."""

    def __init__(self) -> None:
        self.tokens = 0
        self._requests: dict[QueuedRequest, None] = {}  # a set would not keep the order
        self._batches = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: QueuedRequest) -> None:
        """Puts a request at the end. It comes before those of which the running batch took any."""
        request.served = self._batches - 1
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

    def take(self, tokens: int) -> Batch:
        """The next batch, of at most `tokens` tokens; a longer item forms a batch alone."""
        self._batches += 1
        batch: Batch = {}
        half = room = tokens // 2
        for request, share in self._in_turns():
            room -= self._move(request, batch, room, int(half * share))
        room += tokens - half
        for request in self._requests:
            room -= self._move(request, batch, room, room)
            if request.taken < len(request.items):
                break
        self._requests = {request: None for request in self._requests if request.taken < len(request.items)}
        return batch

    def _in_turns(self) -> Iterator[tuple[QueuedRequest, float]]:
        """The requests in the order of their turns, each with its share of the half that is given in turns: one request
        of every caller, then a second of each; those served longest ago first."""
        by_caller: dict[str, list[QueuedRequest]] = {}
        for request in sorted(self._requests, key=lambda request: request.served):
            by_caller.setdefault(request.caller, []).append(request)
        callers = sorted(by_caller.values(), key=lambda requests: requests[-1].served)  # when each was last served
        for turn in zip_longest(*callers):
            for request in filter(None, turn):
                yield request, 1 / len(by_caller) / len(by_caller[request.caller])

    def _move(self, request: QueuedRequest, batch: Batch, room: int, share: int) -> int:
        """Moves a request's items to a batch while there is `room`, up to its `share` but at least one, all in tokens;
        returns their tokens. Any item fits an empty batch."""
        spent = 0
        while request.taken < len(request.items):
            item = request.items[request.taken]
            cost = 0 if item in batch else item.cost
            if cost and ((batch and spent + cost > room) or (spent and spent + cost > share)):
                break
            spent += cost
            batch.setdefault(item, []).append((request, request.taken))
            request.taken += 1
            request.served = self._batches
            self._set_tokens(request, request.tokens - item.cost)
        return spent

    def _set_tokens(self, request: QueuedRequest, tokens: int) -> None:
        self.tokens += tokens - request.tokens
        request.tokens = tokens
        request.room.set(tokens)
