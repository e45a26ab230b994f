"""The async front of a blocking engine: concurrent requests share its batches.

All state lives on the event loop, so nothing here is locked; only the engine runs elsewhere, in the `Runner`'s thread.
`StepScorer._step` is the whole design.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from unprm.budget import Budget, Held
from unprm.engines.runner import Runner, plain_sum
from unprm.engines.turns import Batch, Job, Scored, Turns
from unprm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelBusy,
    ModelUnavailable,
    ModelUnreachable,
    ShuttingDown,
    SolutionTooLong,
    UnprmError,
)
from unprm.types import BatchScores, Encoded, Engine, Usage

logger = logging.getLogger(__name__)

_MEMORY = 0.8
"""Weight of what earlier batches ran, and of the time it took, for each later batch."""
_RETRY = 5.0
"""Seconds between two attempts to reach a model that runs in another program."""
_MOMENT = 0.25
"""Seconds that a batch should take: a request that comes meanwhile waits for it, and for its own batch."""
_LEAST = 256
"""Tokens of a batch whatever time they take: fewer would take hardly less."""
_SLACK = 2
"""A request may have up to this many times its permit's tokens: estimates err by less, and it is already encoded."""


class BatchFigures(NamedTuple):
    """Figures of a batch. `items`: sequences; `tokens`, of which `computed` were run; `seconds` that it took; `waits`:
    seconds that each request waited whose first item is in it; `unread`: steps without a verdict of a judge."""

    items: int
    tokens: int
    computed: int
    seconds: float
    waits: list[float]
    unread: int


@dataclass(slots=True)
class Permit:
    """Room in the queue for a request of about `tokens` tokens; `room`: what it holds until the request is queued."""

    tokens: int
    room: Held


@dataclass(slots=True)
class Recent:
    """Sums over recent batches, older ones counting less: their `tokens`, those `computed`, and the seconds. They
    hardly depend on small batches, whose time says little about larger ones."""

    tokens: float = 0.0
    computed: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: int, computed: int, seconds: float) -> None:
        """Adds a batch."""
        self.tokens = _MEMORY * self.tokens + tokens
        self.computed = _MEMORY * self.computed + computed
        self.seconds = _MEMORY * self.seconds + max(seconds, 1e-6)


Finished = tuple[Batch, BatchScores]
"""A batch and its scores, not delivered yet."""


class StepScorer:
    """Scores the steps of concurrent requests in shared batches. Used from one event loop; `drain` ends it.

    `batch_tokens`: most tokens of a batch, which has fewer where they would take long, since nothing overtakes it; a
    longer item runs alone. `max_queued_tokens`: of which callers share by the rule of `Budget` what may wait.
    `patience`: seconds that a batch may take. `observe` is called with the figures of every batch that was run.
    `clock`: of seconds, by which waits and batches are timed.

    A model that hangs, or that fails on every input, is lost: all requests are refused from then on, and `lost` is
    called once. One that can't be reached may come back: requests go on trying, and so does the queue itself, every
    `retry` seconds, with a plain sum.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_tokens: int = 16_384,
        max_queued_tokens: int = 1_048_576,
        patience: float = 300.0,
        retry: float = _RETRY,
        observe: Callable[[BatchFigures], None] = lambda figures: None,
        lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._batch_tokens = batch_tokens
        self._room = Budget(max_queued_tokens, "tokens", self._retry_after)
        self._retry = retry
        self._observe = observe
        self._tell_lost = lost
        self._runner = Runner(engine, patience, self._lose)
        self._turns = Turns()
        self._jobs: dict[Job, None] = {}  # unanswered, by arrival
        self._unreachable: str | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._recent = Recent()
        self._clock = clock
        self._closed = False
        self._serving: asyncio.Task[None] | None = None

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait for a batch."""
        return self._turns.tokens

    @property
    def queued_requests(self) -> int:
        """Requests with items that wait for a batch."""
        return len(self._turns)

    async def score(
        self,
        encoded: Sequence[Encoded],
        *,
        deadline: float | None = None,
        caller: str = "",
        permit: Permit | None = None,
    ) -> Scored:
        """Scores all items or none. `deadline`: a time of the event loop's clock. `caller`: requests of one caller
        share its turns and its room in the queue. `permit`: the room that `reserve` keeps for it.

        Raises `InvalidRequest` and `Overloaded` before anything runs; `ShuttingDown`, `DeadlineExceeded` and
        `ModelUnavailable` then or later. A cancelled request leaves the queue: its waiting items never run.
        """
        loop = asyncio.get_running_loop()
        seconds = math.inf if deadline is None else deadline - loop.time()
        self._check(encoded, seconds, caller, permit)
        if not encoded:
            return Scored([], Usage(), {})
        job = Job(encoded, deadline, caller, self._clock(), Held(self._room, caller), loop.create_future())
        self._enqueue(job)
        try:
            async with asyncio.timeout_at(deadline):
                return await job.done
        except TimeoutError:
            raise DeadlineExceeded(seconds) from None
        finally:
            self._turns.leave(job)
            self._jobs.pop(job, None)

    async def drain(self, timeout: float) -> None:
        """Takes no new work, finishes what waits, closes the engine.

        Requests not answered within `timeout` seconds fail with `ShuttingDown`; the engine is not waited for
        then, and closes after its current call. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self._reaching is not None:
            self._reaching.cancel()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=timeout)
            self._serving.cancel()
        self._fail(self._jobs, ShuttingDown())
        await self._runner.close()

    def check_ready(self) -> None:
        """Raises `ShuttingDown`, and `ModelUnavailable` while the model is lost or can't be reached. What waits does
        not count, or a caller could have the server taken away from all others."""
        self._check_open()
        if self._unreachable is not None:
            raise ModelUnavailable(self._unreachable)

    @contextmanager
    def reserve(self, tokens: int, caller: str = "") -> Iterator[Permit]:
        """Reserves room in the queue for about this many tokens while they are encoded: until `score` has queued them,
        or the block ends. Raises as `check_room` does."""
        self._check_open()
        permit = Permit(tokens, Held(self._room, caller))
        permit.room.take(tokens)
        try:
            yield permit
        finally:
            permit.room.set(0)

    def check_room(self, tokens: int = 1, caller: str = "") -> None:
        """Raises `Overloaded`, `ShuttingDown` or `ModelUnavailable` if this many more tokens of a caller would be
        refused now.

        Call it before encoding, so that nothing is encoded that would be refused.
        """
        self._check_open()
        self._room.check(caller, tokens)

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDown
        if self._runner.lost is not None:
            raise ModelUnavailable(self._runner.lost)

    def _check(self, encoded: Sequence[Encoded], seconds: float, caller: str, permit: Permit | None) -> None:
        """Admission, all or nothing. The permit's room is given back: the queued request holds its own."""
        about = self._engine.description
        for index, item in enumerate(encoded):
            if len(item.ids) > about.max_tokens:
                raise SolutionTooLong(index, len(item.ids), about.max_tokens)
        tokens = sum(item.cost for item in encoded)
        if about.asked is not None and tokens > about.asked.request:
            raise InvalidRequest(
                f"the judge's prompts for these solutions would take {tokens} tokens, the limit is "
                f"{about.asked.request}: send fewer solutions, or fewer steps",
                "/solutions",
            )
        if seconds <= 0:
            raise DeadlineExceeded(max(seconds, 0.0))
        self._check_open()
        if permit is not None:
            permit.room.set(0)
        if permit is None or tokens > _SLACK * permit.tokens:
            self._room.check(caller, tokens)

    def _retry_after(self, missing: int) -> float:
        """Seconds until there may be room for `missing` tokens more, at the recent speed; from 1 to 60, by when most of
        what waits has run out of time."""
        waiting = self._turns.tokens
        ahead = min(waiting, missing + max(0, waiting - self._room.taken))  # of large requests only a part is counted
        return min(60.0, max(1.0, ahead * self._recent.seconds / max(1.0, self._recent.tokens)))

    def _most(self) -> int:
        """Most tokens of the next batch."""
        if (asked := self._engine.description.asked) is not None:
            return asked.batch
        recent = self._recent
        moment = int(_MOMENT * recent.computed / recent.seconds) if recent.seconds else 0
        return min(self._batch_tokens, max(_LEAST, moment))

    def _enqueue(self, job: Job) -> None:
        self._jobs[job] = None
        self._turns.add(job)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        finished: Finished | None = None
        try:
            while self._turns or finished is not None:
                finished = await self._step(finished)
        except Exception as error:  # a bug here must not leave callers waiting for ever
            logger.exception("the queue stopped on an error of its own")
            self._fail(self._jobs, ModelUnavailable(f"the queue failed ({type(error).__name__})"))

    async def _step(self, before: Finished | None) -> Finished | None:
        """One batch: take what fits, run it, and meanwhile deliver the scores of the batch before."""
        for job in self._turns.late(asyncio.get_running_loop().time()):
            self._turns.leave(job)  # its caller's own timeout is about to fire
        if not self._turns:
            await self._deliver(before)
            return None
        batch = self._turns.take(self._most())
        finished, _ = await asyncio.gather(self._ran(batch), self._deliver(before))
        return finished

    async def _ran(self, batch: Batch) -> Finished | None:
        """Runs a batch; None if it failed, in which case its requests have the error."""
        begun = self._clock()
        for job in {place.job for places in batch.values() for place in places}:
            job.begun = begun if job.begun is None else job.begun
        try:
            scores = await self._runner.run(tuple(batch))
        except ModelUnavailable as error:
            self._fail([place.job for places in batch.values() for place in places], error)
            if isinstance(error, ModelBusy):  # with what callers asked
                self._unreachable = None
            elif isinstance(error, ModelUnreachable):
                self._keep_reaching(str(error))
            else:
                await self._runner.test_after_failures()
            return None
        self._unreachable = None
        self._measure(batch, scores, begun, self._clock() - begun)
        return batch, scores

    def _keep_reaching(self, reason: str) -> None:
        self._unreachable = reason
        if self._reaching is None or self._reaching.done():
            self._reaching = asyncio.create_task(self._reach())

    async def _reach(self) -> None:
        """Scores a plain sum now and then, until the model answers."""
        while self._unreachable is not None:
            await asyncio.sleep(self._retry)
            with suppress(UnprmError):
                await self.score([plain_sum(self._engine)])

    def _lose(self) -> None:
        self._fail(self._jobs, ModelUnavailable(str(self._runner.lost)))
        self._tell_lost()

    async def _deliver(self, finished: Finished | None) -> None:
        """Delivers the scores, one request at a time: writing an answer takes a while, and many at once would delay
        requests that arrive meanwhile."""
        if finished is None:
            return
        batch, scored = finished
        totals = scored.tokens or [len(item.ids) for item in batch]
        unread = scored.unread or [0] * len(batch)
        for places, values, cost, total, missing in zip(
            batch.values(), scored.scores, scored.computed, totals, unread, strict=True
        ):
            for job, position in places:
                if job.done.done():  # its caller has gone
                    continue
                job.scores[position] = values
                if missing:
                    job.unread[position] = missing
                job.total += total
                job.computed, cost = job.computed + cost, 0  # charged to the first
                if len(job.scores) == len(job.items):
                    job.done.set_result(job.scored(self._clock()))
                    await asyncio.sleep(0)

    def _fail(self, jobs: Iterable[Job], error: Exception) -> None:
        for job in list(jobs):
            self._turns.leave(job)
            if not job.done.done():
                job.done.set_exception(error)

    def _measure(self, batch: Batch, scores: BatchScores, begun: float, seconds: float) -> None:
        tokens, computed = sum(item.cost for item in batch), sum(scores.computed)
        self._recent.add(tokens, computed, seconds)
        waits = [begun - place.job.arrived for places in batch.values() for place in places if place.position == 0]
        self._observe(BatchFigures(len(batch), tokens, computed, seconds, waits, sum(scores.unread or ())))
