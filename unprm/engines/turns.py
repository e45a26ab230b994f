"""The queue of a model: which requests wait, and which are next.

Half of a batch goes to the oldest requests, the other half in turns to the callers and to the requests of each: a
large request neither waits for the rest nor holds it up. All state lives on the event loop.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from unprm.budget import Held
from unprm.types import Encoded, Usage


class Scored(NamedTuple):
    """Step scores in the order of the request's items, and what they cost. `unread`: on how many of
    its steps a judge gave no verdict, by the index of an item with such steps."""

    scores: list[tuple[float, ...]]
    usage: Usage
    unread: Mapping[int, int]


@dataclass(eq=False, slots=True)
class Job:
    """The items of a request; `taken` of them have left the queue, the others have `waiting` tokens, which hold `room`.
    `caller`: jobs of one caller share its turns. `arrived`: time of the queue's clock; `served`: number of the
    last batch that took any, or of the one before its arrival. `total` tokens of its scored items, of which `computed`
    were run. `begun`: when its first batch began, by the clock of `arrived`."""

    items: Sequence[Encoded]
    deadline: float | None
    caller: str
    arrived: float
    room: Held
    done: "asyncio.Future[Scored]"
    begun: float | None = None
    served: int = 0
    taken: int = 0
    waiting: int = 0
    computed: int = 0
    total: int = 0
    scores: dict[int, tuple[float, ...]] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)

    def scored(self, now: float) -> Scored:
        """The answer, once all items have scores; `now` by the clock of `arrived`."""
        assert self.begun is not None, "it has scores"
        usage = Usage(
            self.total,
            self.computed,
            self.total - self.computed,
            queue_seconds=self.begun - self.arrived,
            scoring_seconds=now - self.begun,
        )
        return Scored([self.scores[index] for index in range(len(self.items))], usage, self.unread)


class Place(NamedTuple):
    """Where a sequence's scores go: the index `position` of an item in a job."""

    job: Job
    position: int


Batch = dict[Encoded, list[Place]]
"""Distinct sequences, and where the scores of each go. Equal sequences run once."""


class Turns:
    """Jobs by arrival. `tokens`: total of the items that no batch has taken yet."""

    def __init__(self) -> None:
        self.tokens = 0
        self._waiting: dict[Job, None] = {}  # a set would not keep the order
        self._batches = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job) -> None:
        """Puts a job at the end. It comes before those of which the batch that runs took any."""
        job.served = self._batches - 1
        self._waiting[job] = None
        self._wait(job, sum(item.cost for item in job.items))

    def leave(self, job: Job) -> None:
        """Removes the waiting items of a job, if any."""
        if job in self._waiting:
            self._waiting.pop(job)
            self._wait(job, 0)

    def late(self, now: float) -> list[Job]:
        """Jobs whose deadline has passed."""
        return [job for job in self._waiting if job.deadline is not None and job.deadline <= now]

    def take(self, tokens: int) -> Batch:
        """The next batch, of at most `tokens` tokens; a longer item forms a batch alone."""
        self._batches += 1
        batch: Batch = {}
        half = room = tokens // 2
        for job, share in self._around():
            room -= self._move(job, batch, room, int(half * share))
        room += tokens - half
        for job in self._waiting:
            room -= self._move(job, batch, room, room)
            if job.taken < len(job.items):
                break
        self._waiting = {job: None for job in self._waiting if job.taken < len(job.items)}
        return batch

    def _around(self) -> Iterator[tuple[Job, float]]:
        """The waiting jobs in the order of their turns, each with its share of the half that is given in turns: one job
        of every caller, then a second of each; those served longest ago first."""
        by_caller: dict[str, list[Job]] = {}
        for job in sorted(self._waiting, key=lambda job: job.served):
            by_caller.setdefault(job.caller, []).append(job)
        callers = sorted(by_caller.values(), key=lambda jobs: jobs[-1].served)  # by when each caller was last served
        for turn in zip_longest(*callers):
            for job in turn:
                if job is not None:
                    yield job, 1 / len(by_caller) / len(by_caller[job.caller])

    def _move(self, job: Job, batch: Batch, room: int, share: int) -> int:
        """Moves items to a batch while there is room, up to the job's share but at least one; returns their tokens.
        Any item fits an empty batch."""
        spent = 0
        while job.taken < len(job.items):
            item = job.items[job.taken]
            cost = 0 if item in batch else item.cost
            if cost and ((batch and spent + cost > room) or (spent and spent + cost > share)):
                break
            spent += cost
            batch.setdefault(item, []).append(Place(job, job.taken))
            job.taken += 1
            job.served = self._batches
            self._wait(job, job.waiting - item.cost)
        return spent

    def _wait(self, job: Job, tokens: int) -> None:
        self.tokens += tokens - job.waiting
        job.waiting = tokens
        job.room.set(tokens)
