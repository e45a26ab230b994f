"""The scheduler between requests and an engine: concurrent requests share its batches.

`Scheduler.step` is the whole design: what waits is batched, the batch is run, and meanwhile the scores of the batch
before are given back. All state lives on the event loop, so nothing here is locked; only the engine runs elsewhere, in
a thread of its own.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from unprm.engines.waiting import Batch, BatchCost, QueuedRequest, ScoredItems, Waiting
from unprm.engines.worker import Worker, checked_scores, plain_sum
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
from unprm.shares import Capacity, Held
from unprm.types import Encoded, Engine, PrefixEngine, StepScores, Usage

logger = logging.getLogger(__name__)

_MOMENT = 0.25
"""Seconds that a batch should take: a request that comes meanwhile waits for it, and for its own batch."""
_ALONE = 0.5
"""A request that waits alone gets one batch, or full ones, if each should take at most so many seconds."""
_SMALLEST = 256
"""Tokens of a batch whatever time they take: fewer would take hardly less."""
_MEMORY = 0.8
"""Weight of what earlier batches ran, and of the time it took, for each later batch."""
_SLACK = 2
"""A request may have up to this many times its permit's tokens: estimates err by less, and it is already encoded."""
_FAILURES = 3
"""Failed batches in a row after which the model is tested."""
_CLOSING = 5.0
"""Seconds that an engine may take to free its memory."""


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
class Recent:
    """Sums over recent batches, older ones counting less: their `tokens`, their `work` in tokens that were run or
    would take as long, and the seconds. They hardly depend on small batches, whose time says little about larger ones.
    """

    tokens: float = 0.0
    work: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: int, work: float, seconds: float) -> None:
        self.tokens = _MEMORY * self.tokens + tokens
        self.work = _MEMORY * self.work + work
        self.seconds = _MEMORY * self.seconds + max(seconds, 1e-6)


class Scheduler:
    """Scores the steps of concurrent requests in shared batches. Used from one event loop; `drain` ends it.

    `batch_tokens`: maximum tokens of a batch, which has fewer where they would take long, since nothing overtakes it;
    a longer item runs alone. `max_queued_tokens`: of which callers share by the rule of `Capacity` what may wait.
    `patience`: seconds that a batch may take. `observe` is called with the figures of every batch that was run.
    `clock`: of seconds, by which waits and batches are timed.

    A model that hangs, or that fails on every input, is lost: all requests are refused from then on, and `on_loss` is
    called once. One that can't be reached may come back: requests go on trying, and so does the scheduler itself,
    every `retry` seconds, with a plain sum.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_tokens: int = 16_384,
        max_queued_tokens: int = 1_048_576,
        patience: float = 300.0,
        retry: float = 5.0,
        observe: Callable[[BatchFigures], None] = lambda figures: None,
        on_loss: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._worker = engine, Worker("engine")
        self._new_tokens = engine.new_tokens if isinstance(engine, PrefixEngine) else None
        self._batch_tokens, self._patience, self._retry = batch_tokens, patience, retry
        self._observe, self._on_loss, self._clock = observe, on_loss, clock
        self._room = Capacity(max_queued_tokens, "tokens", self._retry_after)
        self._waiting = Waiting()
        self._unanswered: dict[QueuedRequest, None] = {}  # by arrival
        self._recent = Recent()
        self._lost: str | None = None
        self._unreachable: str | None = None
        self._failures = 0  # in a row
        self._closed = False
        self._serving: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None

    @property
    def queued_tokens(self) -> int:
        return self._waiting.tokens

    @property
    def queued_requests(self) -> int:
        return len(self._waiting)

    async def score(
        self,
        encoded: Sequence[Encoded],
        *,
        deadline: float | None = None,
        caller: str = "",
        permit: Held | None = None,
    ) -> ScoredItems:
        """Scores all items or none. `deadline`: a time of the event loop's clock. `caller`: requests of one caller
        share its turns and its room in the queue. `permit`: the room that it holds by `reserve`.

        Raises `InvalidRequest` and `Overloaded` before anything runs; `ShuttingDown`, `DeadlineExceeded` and
        `ModelUnavailable` then or later. A cancelled request leaves the queue: its waiting items never run.
        """
        loop = asyncio.get_running_loop()
        seconds = math.inf if deadline is None else deadline - loop.time()
        room = Held(self._room, caller) if permit is None else permit
        self._admit(encoded, seconds, room)
        if not encoded:
            return ScoredItems([], Usage())
        request = QueuedRequest(encoded, deadline, caller, self._clock(), room, loop.create_future())
        self._unanswered[request] = None
        self._waiting.add(request)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout_at(deadline):
                return await request.done
        except TimeoutError:
            raise DeadlineExceeded(seconds) from None
        finally:
            self._waiting.remove(request)
            self._unanswered.pop(request, None)

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
        self._fail(self._unanswered, ShuttingDown())
        patience = 0.0 if self._worker.busy else _CLOSING
        closing = asyncio.create_task(self._worker.call(self._engine.close))
        await asyncio.wait({closing}, timeout=patience)
        closing.cancel()
        self._worker.close()

    def check_ready(self) -> None:
        """Raises `ShuttingDown`, and `ModelUnavailable` while the model is lost or can't be reached. What waits does
        not count, or a caller could have the server taken away from all others."""
        self._check_open()
        if self._unreachable is not None:
            raise ModelUnavailable(self._unreachable)

    @contextmanager
    def reserve(self, tokens: int, caller: str = "") -> Iterator[Held]:
        """Reserves room in the queue for about this many tokens while they are encoded: until `score` has queued them,
        or the block ends. Raises as `check_room` does."""
        self._check_open()
        with Held(self._room, caller) as room:
            room.take(tokens)
            yield room

    def check_room(self, tokens: int = 1, caller: str = "") -> None:
        """Raises `Overloaded`, `ShuttingDown` or `ModelUnavailable` if this many more tokens of a caller would be
        refused now.

        Call it before encoding, so that nothing is encoded that would be refused.
        """
        self._check_open()
        self._room.check(caller, tokens)

    async def step(self, before: tuple[Batch, list[StepScores]] | None) -> tuple[Batch, list[StepScores]] | None:
        """One batch: takes what fits, runs it, and meanwhile gives back the scores of the batch `before`. Returns the
        batch and its scores; None if it failed, or nothing waits."""
        for request in self._waiting.expired(asyncio.get_running_loop().time()):
            self._waiting.remove(request)  # its caller's own timeout is about to fire
        if not self._waiting:
            await self._give_back(before)
            return None
        batch = self._waiting.take(*self._batch_limits(), self._new_tokens)
        scores, _ = await asyncio.gather(self._run(batch), self._give_back(before))
        return None if scores is None else (batch, scores)

    async def _serve(self) -> None:
        finished: tuple[Batch, list[StepScores]] | None = None
        try:
            while self._waiting or finished is not None:
                finished = await self.step(finished)
        except Exception as error:  # a bug here must not leave callers waiting for ever
            logger.exception("the scheduler stopped on an error of its own")
            self._fail(self._unanswered, ModelUnavailable(f"the scheduler failed ({type(error).__name__})"))

    # what waits

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDown
        if self._lost is not None:
            raise ModelUnavailable(self._lost)

    def _admit(self, encoded: Sequence[Encoded], seconds: float, room: Held) -> None:
        """Admission, all or nothing. `room`: what the request holds already."""
        about = self._engine.description
        for index, item in enumerate(encoded):
            if len(item.ids) > about.max_tokens:
                raise SolutionTooLong(index, len(item.ids), about.max_tokens)
        tokens = sum(item.cost for item in encoded)
        if about.prompt_limits is not None and tokens > about.prompt_limits.request:
            raise InvalidRequest(
                f"the judge's prompts for these solutions would take {tokens} tokens, the limit is "
                f"{about.prompt_limits.request}: send fewer solutions, or fewer steps",
                "/solutions",
            )
        if seconds <= 0:
            raise DeadlineExceeded(max(seconds, 0.0))
        self._check_open()
        if (counted := self._room.counted(tokens)) > _SLACK * room.amount:
            room.take(counted - room.amount)

    def _retry_after(self, missing: int) -> float:
        """Seconds until there may be room for `missing` tokens more, at the recent speed; from 1 to 60, by when most of
        what waits has run out of time."""
        waiting = self._waiting.tokens
        ahead = min(waiting, missing + max(0, waiting - self._room.taken))  # of large requests only a part is counted
        return min(60.0, max(1.0, ahead * self._recent.seconds / max(1.0, self._recent.tokens)))

    # what is batched

    def _batch_limits(self) -> tuple[int, int]:
        """Maximum tokens of the next batch, and of one that is all of a request that waits alone."""
        if (limits := self._engine.description.prompt_limits) is not None:
            return limits.batch, limits.batch
        speed = self._recent.work / self._recent.seconds if self._recent.seconds else 0.0
        alone = min(self._batch_tokens, int(_ALONE * speed))
        if len(self._waiting) == 1 and alone == self._batch_tokens:
            return alone, alone
        return min(self._batch_tokens, max(_SMALLEST, int(_MOMENT * speed))), alone

    # what is run

    async def _run(self, batch: Batch) -> list[StepScores] | None:
        """The scores of a batch; None if it failed, in which case its requests have the error."""
        begun = self._clock()
        for request in {request for holders in batch.values() for request, _ in holders}:
            request.begun = begun if request.begun is None else request.begun
        try:
            # what an engine calls then belongs to the trace of the batch's first request
            ((first, _), *_) = next(iter(batch.values()))
            scores = await self._scores(tuple(batch), first.trace)
        except ModelUnavailable as error:
            self._fail((request for holders in batch.values() for request, _ in holders), error)
            await self._note_failure(error)
            return None
        self._failures, self._unreachable = 0, None
        tokens, seconds = sum(item.cost for item in batch), self._clock() - begun
        computed, unread = sum(each.computed for each in scores), sum(each.missing for each in scores)
        read = sum(each.tokens - each.computed for each in scores if each.computed) if self._new_tokens else 0
        self._recent.add(tokens, computed + read / BatchCost.READ, seconds)
        waits = [begun - request.arrived for holders in batch.values() for request, index in holders if index == 0]
        self._observe(BatchFigures(len(batch), tokens, computed, seconds, waits, unread))
        return scores

    async def _scores(self, items: Sequence[Encoded], trace: Context) -> list[StepScores]:
        """The engine's scores, checked to be usable; raises `ModelUnavailable`. A model that hangs is lost."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._worker.call(partial(trace.run, checked_scores, self._engine, items))
        except TimeoutError:
            reason = f"the model did not answer within {self._patience:g} s"
            self._lose(reason)
            raise ModelUnavailable(reason) from None

    async def _note_failure(self, error: ModelUnavailable) -> None:
        """Finds out whether the model is lost: after several failed batches in a row it has to score a plain sum."""
        if isinstance(error, ModelBusy):  # with what callers sent
            self._unreachable = None
        elif isinstance(error, ModelUnreachable):  # which is no fault of the model's
            self._unreachable = str(error)
            if self._reaching is None or self._reaching.done():
                self._reaching = asyncio.create_task(self._reach())
        else:
            self._failures += 1
            if self._failures < _FAILURES or self._lost is not None:
                return
            try:
                await self._scores([plain_sum(self._engine)], Context())
                self._failures = 0
            except ModelUnavailable:
                self._lose(f"the model failed {self._failures} times in a row, then on a plain sum")

    async def _reach(self) -> None:
        """Scores a plain sum now and then, until the model answers."""
        while self._unreachable is not None:
            await asyncio.sleep(self._retry)
            with suppress(UnprmError):
                await self.score([plain_sum(self._engine)])

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            logger.critical("the model is lost: %s", reason)
            self._lost = f"the model is lost: {reason}"
            self._fail(self._unanswered, ModelUnavailable(self._lost))
            self._on_loss()

    # what is given back

    async def _give_back(self, finished: tuple[Batch, list[StepScores]] | None) -> None:
        """Gives each request its scores, one request at a time: writing an answer takes a while, and many at once would
        delay requests that arrive meanwhile."""
        if finished is None:
            return
        batch, scored = finished
        for holders, scores in zip(batch.values(), scored, strict=True):
            given = scores
            for request, index in holders:
                if request.done.done():  # its caller has gone
                    continue
                request.scores[index] = given
                given = scores._replace(computed=0)  # charged to the first
                if len(request.scores) == len(request.items):
                    request.done.set_result(request.scored(self._clock()))
                    await asyncio.sleep(0)

    def _fail(self, requests: Iterable[QueuedRequest], error: Exception) -> None:
        for request in list(requests):
            self._waiting.remove(request)
            if not request.done.done():
                request.done.set_exception(error)
