"""The queue in front of a blocking engine: concurrent requests share its batches. Half of each goes to what came
first, the other half around, from caller to caller and among the requests of each, so that much that is asked neither
waits for the rest nor the rest for it.

A job is one caller's items. All state lives on the event loop, so nothing here is locked; only the engine
runs elsewhere, in one thread. `StepScorer._step` is the whole design.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from unprm.engines.worker import Worker
from unprm.errors import DeadlineExceeded, ModelUnavailable, Overloaded, ShuttingDown, SolutionTooLong
from unprm.types import BatchScores, Encoded, Engine, Usage

logger = logging.getLogger(__name__)

_MEMORY = 0.8
"""Weight of the past in the measured speed, per batch."""
_CLOSING = 5.0
"""Seconds an engine has to free its memory."""


class Scored(NamedTuple):
    """Step scores in the order of the items asked for, and what they cost."""

    scores: list[tuple[float, ...]]
    usage: Usage


@dataclass(eq=False, slots=True)
class _Job:
    """One caller's items; `taken` of them have left the queue. `served`: number of the last batch that took any, or
    that was taken before it came."""

    items: Sequence[Encoded]
    deadline: float | None
    done: "asyncio.Future[Scored]"
    caller: str
    served: int
    taken: int = 0
    computed: int = 0
    scores: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def tokens(self) -> int:
        """Tokens that still wait."""
        return sum(len(item.ids) for item in self.items[self.taken :])


class _Place(NamedTuple):
    """Where a sequence's scores go: the item at a position of a job."""

    job: _Job
    position: int


class StepScorer:
    """The async front of an engine. Used from one event loop; `drain` ends it.

    `batch_tokens`: size of a batch; a longer item runs alone. `max_queued_tokens`: what may wait; a larger
    request is taken only when nothing waits.
    """

    def __init__(self, engine: Engine, *, batch_tokens: int = 16_384, max_queued_tokens: int = 1_048_576) -> None:
        self._engine = engine
        self._batch_tokens = batch_tokens
        self._max_queued_tokens = max_queued_tokens
        self._jobs: dict[_Job, None] = {}  # unanswered, by arrival; a set would forget the order
        self._waiting: dict[_Job, None] = {}  # those of them with items that no batch has taken yet
        self._queued_tokens = 0
        self._batches = 0
        self._tokens_per_second = 0.0
        self._closed = False
        self._worker = Worker("engine")
        self._serving: asyncio.Task[None] | None = None

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait for a batch."""
        return self._queued_tokens

    @property
    def queued_requests(self) -> int:
        """Callers with items that wait for a batch."""
        return len(self._waiting)

    async def score(self, encoded: Sequence[Encoded], *, deadline: float | None = None, caller: str = "") -> Scored:
        """Scores all items or none. `deadline`: a time of the event loop's clock. `caller`: who shares a turn.

        Raises `SolutionTooLong`, `Overloaded`, `ShuttingDown` before anything runs, `DeadlineExceeded` and
        `ModelUnavailable` later. A caller that is cancelled frees its place: what waits of it never runs.
        """
        seconds = math.inf if deadline is None else deadline - asyncio.get_running_loop().time()
        self._check(encoded, seconds)
        if not encoded:
            return Scored([], Usage())
        job = self._enqueue(encoded, deadline, caller)
        try:
            async with asyncio.timeout_at(deadline):
                return await job.done
        except TimeoutError:
            raise DeadlineExceeded(seconds) from None
        finally:
            self._leave_queue(job)
            self._jobs.pop(job, None)

    async def drain(self, timeout: float) -> None:
        """Takes no new work, finishes what waits, closes the engine.

        What isn't answered within `timeout` seconds fails with `ShuttingDown`; the engine is not waited for
        then, and closes when it comes to it. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=timeout)
            self._serving.cancel()
        self._fail(self._jobs, ShuttingDown())
        patience = 0.0 if self._worker.busy else _CLOSING
        closing = asyncio.create_task(self._worker.run(self._engine.close))
        await asyncio.wait({closing}, timeout=patience)
        closing.cancel()
        self._worker.close()

    def check_room(self, tokens: int = 1) -> None:
        """Raises `Overloaded` or `ShuttingDown` if so many tokens more would not be taken now.

        Whoever asks before it encodes spares itself the work of encoding what would be refused.
        """
        if self._closed:
            raise ShuttingDown
        waiting = self._queued_tokens
        if waiting and waiting + tokens > self._max_queued_tokens:
            raise Overloaded(waiting, tokens, self._max_queued_tokens, self._retry_after(tokens))

    def _check(self, encoded: Sequence[Encoded], seconds: float) -> None:
        """Admission, all or nothing."""
        limit = self._engine.description.max_tokens
        for index, item in enumerate(encoded):
            if len(item.ids) > limit:
                raise SolutionTooLong(index, len(item.ids), limit)
        if seconds <= 0:
            raise DeadlineExceeded(max(seconds, 0.0))
        self.check_room(sum(len(item.ids) for item in encoded))

    def _retry_after(self, asked: int) -> float:
        """Seconds until there may be room, by the speed of late; 1 at least."""
        excess = min(self._queued_tokens, self._queued_tokens + asked - self._max_queued_tokens)
        return max(1.0, excess / self._tokens_per_second) if self._tokens_per_second else 1.0

    def _enqueue(self, encoded: Sequence[Encoded], deadline: float | None, caller: str) -> _Job:
        job = _Job(encoded, deadline, asyncio.get_running_loop().create_future(), caller, self._batches)
        self._jobs[job] = self._waiting[job] = None
        self._queued_tokens += job.tokens()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return job

    async def _serve(self) -> None:
        try:
            while self._waiting:
                await self._step()
        except Exception as error:  # a bug here must not leave callers waiting for ever
            logger.exception("the queue stopped on an error of its own")
            self._fail(self._jobs, ModelUnavailable(f"the queue failed ({type(error).__name__})"))

    async def _step(self) -> None:
        """One batch: take what fits, run it, hand the scores out."""
        batch = self._take()
        if not batch:  # all that waited was too late
            return
        started = time.monotonic()
        try:
            scores = await self._worker.run(partial(_run, self._engine, tuple(batch)))
        except ModelUnavailable as error:
            self._fail([place.job for places in batch.values() for place in places], error)
        else:
            self._measure(sum(len(item.ids) for item in batch), time.monotonic() - started)
            self._deliver(batch, scores)

    def _take(self) -> dict[Encoded, list[_Place]]:
        """The next batch: distinct sequences, and who asked for each. Equal ones run once."""
        now = asyncio.get_running_loop().time()
        for job in list(self._waiting):
            if job.deadline is not None and job.deadline <= now:
                self._leave_queue(job)  # its caller is about to wake up and see for itself
        self._batches += 1
        batch: dict[Encoded, list[_Place]] = {}
        half = room = self._batch_tokens // 2
        for job, share in self._turns():
            room -= self._move(job, batch, room, int(half * share))
        room += self._batch_tokens - half
        for job in self._waiting:
            room -= self._move(job, batch, room, room)
            if job.taken < len(job.items):
                break
        self._waiting = {job: None for job in self._waiting if job.taken < len(job.items)}
        return batch

    def _turns(self) -> Iterator[tuple[_Job, float]]:
        """What waits, in the order in which it may take its share of what goes around: a request of every caller, then
        a second one of each; first those that were served longest ago."""
        own: dict[str, list[_Job]] = {}
        for job in sorted(self._waiting, key=lambda job: job.served):
            own.setdefault(job.caller, []).append(job)
        callers = sorted(own.values(), key=lambda jobs: jobs[-1].served)  # by when each was served last
        for turn in zip_longest(*callers):
            for job in turn:
                if job is not None:
                    yield job, 1 / len(own) / len(own[job.caller])

    def _move(self, job: _Job, batch: dict[Encoded, list[_Place]], room: int, share: int) -> int:
        """Moves items from the queue to a batch, as far as there is room, at most the caller's share but one at least;
        returns their tokens. Any item fits an empty batch."""
        spent = 0
        while job.taken < len(job.items):
            item = job.items[job.taken]
            cost = 0 if item in batch else len(item.ids)
            if cost and ((batch and spent + cost > room) or (spent and spent + cost > share)):
                break
            spent += cost
            batch.setdefault(item, []).append(_Place(job, job.taken))
            job.taken += 1
            job.served = self._batches
            self._queued_tokens -= len(item.ids)
        return spent

    def _deliver(self, batch: dict[Encoded, list[_Place]], told: BatchScores) -> None:
        for places, values, cost in zip(batch.values(), *told, strict=True):
            for job, position in places:
                if job.done.done():  # its caller is gone
                    continue
                job.scores[position] = values
                job.computed, cost = job.computed + cost, 0  # the first pays
                if len(job.scores) == len(job.items):
                    job.done.set_result(_scored(job))

    def _fail(self, jobs: Iterable[_Job], error: Exception) -> None:
        for job in list(jobs):
            self._leave_queue(job)
            if not job.done.done():
                job.done.set_exception(error)

    def _leave_queue(self, job: _Job) -> None:
        if job in self._waiting:
            self._waiting.pop(job)
            self._queued_tokens -= job.tokens()

    def _measure(self, tokens: int, seconds: float) -> None:
        speed = tokens / max(seconds, 1e-6)
        past = self._tokens_per_second or speed
        self._tokens_per_second = _MEMORY * past + (1 - _MEMORY) * speed


def _run(engine: Engine, batch: Sequence[Encoded]) -> BatchScores:
    """The engine's scores if they are what was asked for; runs in the engine's thread."""
    try:
        scores = engine.score(batch)
        fault = _fault(batch, scores)
    except BaseException as error:  # a library may raise anything: every waiter is told
        logger.exception("the model failed on a batch of %d items", len(batch))
        raise ModelUnavailable(f"the model failed on this request ({type(error).__name__})") from error
    if fault is not None:
        logger.error("the model answered a batch of %d items wrongly: %s", len(batch), fault)
        raise ModelUnavailable(f"the model's answer can't be used: {fault}")
    return scores


def _fault(batch: Sequence[Encoded], told: BatchScores) -> str | None:
    scores, computed = told
    if not len(scores) == len(computed) == len(batch):
        return f"it has scores for {len(scores)} of {len(batch)} items"
    for item, values in zip(batch, scores, strict=True):
        if len(values) != len(item.positions):
            return f"an item has {len(values)} scores for {len(item.positions)} steps"
        if not all(0.0 <= value <= 1.0 for value in values):  # false for NaN, too
            return "a score is not within 0 and 1"
    return None


def _scored(job: _Job) -> Scored:
    tokens = sum(len(item.ids) for item in job.items)
    usage = Usage(tokens, job.computed, tokens - job.computed)
    return Scored([job.scores[index] for index in range(len(job.items))], usage)
