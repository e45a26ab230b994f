"""The queue between requests and an engine: concurrent requests share its batches.

`ModelQueue._serve` is the whole design: what waits is batched, the batch is run, and meanwhile scores of the last one
are given back. State lives on the event loop, without locks; the engine runs in a thread of its own.

Half of a batch goes in turns to the callers and their requests, the other half to the oldest requests: a large request
neither waits for the rest nor holds it up.
"""

import asyncio
import logging
import math
import threading
import time
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from unprm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelBusy,
    ModelUnavailable,
    ModelUnreachable,
    ShuttingDown,
    UnprmError,
)
from unprm.fair_shares import Capacity, FairQueue, Reservation
from unprm.types import Encoded, Engine, PrefixEngine, StepScores, Usage, common_prefix

T = TypeVar("T")
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
"""A request may have up to this many times its reserved tokens: estimates err by less, and it is already encoded."""
_FAILURES = 3
"""Failed batches in a row after which the model is tested."""
_CLOSING = 5.0
"""Seconds that an engine may take to free its memory."""


class ScoredItems(NamedTuple):
    """Step scores in the order of the request's items, and what they cost."""

    scores: list[StepScores]
    usage: Usage


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The items that a caller has scored together. `reservation`: tokens of items that no batch has taken; `taken`:
    number of items that one has. `arrived`, `begun`: by the queue's clock; `deadline`: by the event loop's. `rank`:
    number of the last batch that took an item, or of the one before the arrival. `scores`: by index; `trace`: the
    caller's context."""

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
        return self.taken < len(self.items) and not self.done.done() and self.deadline > self.done.get_loop().time()


class Batch:
    """Distinct items of at most `room` tokens, or a longer one. `items`: the requests of each, with its index there.

    `new_tokens`: tokens of an item that the engine would run, where it runs prefixes once; `read` others cost as much
    as one.
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
            shared = max((common_prefix(item.ids, ids) for scope, ids in near if scope == item.scope), default=0)
            new = min(len(item.ids) - shared, self._new_tokens(item))
            cost = new + (len(item.ids) - new) // self._read
        if self.items and cost > room:
            return None
        if self._new_tokens is not None:
            self._sorted.insert(place, key)
        self.room -= cost
        self.items[item] = []
        return cost


class BatchFigures(NamedTuple):
    """Figures of a batch. `items`: distinct; `tokens`, of which `computed` were run; `waits`: seconds of requests whose
    first item is in it; `unread`: steps without a judge's verdict."""

    items: int
    tokens: int
    computed: int
    seconds: float
    waits: list[float]
    unread: int


@dataclass(slots=True)
class RecentSpeed:
    """Sums over recent batches, older ones counting less, so that small batches hardly matter. `work`: tokens that were
    run, or would take as long."""

    tokens: float = 0.0
    work: float = 0.0
    seconds: float = 0.0

    def add(self, tokens: int, work: float, seconds: float) -> None:
        self.tokens = _MEMORY * self.tokens + tokens
        self.work = _MEMORY * self.work + work
        self.seconds = _MEMORY * self.seconds + max(seconds, 1e-6)


Scored = list[tuple[list[tuple[QueuedRequest, int]], StepScores]]
"""The scores of each item of a batch, with the requests that have it, and its index among their items."""


class ModelQueue:
    """Scores the steps of concurrent requests in shared batches. Used from one event loop; `drain` ends it.

    `batch_tokens`: maximum tokens of a batch, fewer where they take long; a longer item runs alone.
    `max_queued_tokens`: shared as by `Capacity`. `patience`: seconds of a batch. `clock`: of seconds.

    A model that hangs, or fails on every input, is lost: all requests are refused, and `on_loss` is called once. One
    that can't be reached may come back: requests go on trying, and the queue does, every `retry` seconds.
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
        self.engine, self._worker = engine, Worker("engine")
        self._new_tokens = engine.new_tokens if isinstance(engine, PrefixEngine) else None
        self._batch_tokens, self._patience, self._retry = batch_tokens, patience, retry
        self._observe, self._on_loss, self._clock = observe, on_loss, clock
        self.room = Capacity(max_queued_tokens, "tokens", self._retry_after)
        self._waiting = FairQueue[QueuedRequest]()
        self._unanswered: dict[QueuedRequest, None] = {}  # by arrival
        self._batches = 0
        self._speed = RecentSpeed()
        self._lost: str | None = None
        self._unreachable: str | None = None
        self._failures = 0  # in a row
        self._closed = False
        self._serving: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> tuple[int, int]:
        """Tokens, and requests, that no batch has taken yet."""
        tokens = [request.reservation.amount for request in self._waiting]
        return sum(tokens), len(tokens)

    async def score(
        self,
        items: Sequence[Encoded],
        *,
        deadline: float = math.inf,
        caller: str = "",
        reservation: Reservation | None = None,
    ) -> ScoredItems:
        """Scores all items or none. `deadline`: by the event loop's clock. `caller`: whose requests share turns and
        room. `reservation`: by `reserve`. A cancelled request's waiting items never run.

        Raises `InvalidRequest` and `Overloaded` before anything runs; `ShuttingDown`, `DeadlineExceeded` and
        `ModelUnavailable` also later.
        """
        loop = asyncio.get_running_loop()
        seconds = deadline - loop.time()
        reservation = Reservation(self.room, caller) if reservation is None else reservation
        tokens, limits = sum(item.cost for item in items), self.engine.description.prompt_limits
        if limits is not None and tokens > limits.request:
            raise InvalidRequest(
                f"the judge's prompts for these solutions would take {tokens} tokens, the limit is {limits.request}: "
                "send fewer solutions, or fewer steps",
                "/solutions",
            )
        if seconds <= 0:
            raise DeadlineExceeded(max(seconds, 0.0))
        self._check_open()
        half = self.room.limit // 2  # as which any larger amount counts
        if min(tokens, half) > _SLACK * min(reservation.amount, half):
            reservation.take(tokens - reservation.amount)
        if not items:
            return ScoredItems([], Usage())
        request = QueuedRequest(
            items,
            deadline,
            caller,
            self._clock(),
            reservation,
            loop.create_future(),
            rank=self._batches - 1,  # before the requests of which the running batch took any
        )
        reservation.set(tokens)
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
            reservation.set(0)
            del self._unanswered[request]

    async def drain(self, timeout: float) -> None:
        """Takes no new work, finishes what waits within `timeout` seconds, and closes the engine after its current
        call. Unanswered requests then fail with `ShuttingDown`."""
        if self._closed:
            return
        self._closed = True
        if self._reaching is not None:
            self._reaching.cancel()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=timeout)
            self._serving.cancel()
        _fail(self._unanswered, ShuttingDown())
        patience = 0.0 if self._worker.busy else _CLOSING
        closing = asyncio.create_task(self._worker.call(self.engine.close))
        await asyncio.wait({closing}, timeout=patience)
        closing.cancel()
        self._worker.close()

    def check_ready(self) -> None:
        """Raises `ShuttingDown` or `ModelUnavailable`; not for what waits, or a caller could take the server away."""
        self._check_open()
        if self._unreachable is not None:
            raise ModelUnavailable(self._unreachable)

    def reserve(self, tokens: int, caller: str = "") -> Reservation:
        """Reserves room for about this many tokens until `score` has queued them, or the `with` block ends. Raises
        `Overloaded`, `ShuttingDown` or `ModelUnavailable`."""
        self._check_open()
        reservation = Reservation(self.room, caller)
        reservation.take(tokens)
        return reservation

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDown
        if self._lost is not None:
            raise ModelUnavailable(self._lost)

    def _retry_after(self, missing: int) -> float:
        """Seconds until there may be room for `missing` tokens, at the recent speed, from 1 to 60."""
        tokens, _ = self.waiting
        ahead = min(tokens, missing + max(0, tokens - self.room.taken))  # of large requests only a part is counted
        return min(60.0, max(1.0, ahead * self._speed.seconds / max(1.0, self._speed.tokens)))

    async def _serve(self) -> None:
        """Runs batch after batch while any request waits; meanwhile the scores of the one before are given back."""
        finished: Scored = []
        try:
            while any(self._waiting) or finished:
                finished, _ = await asyncio.gather(self._run(self._next_batch()), self._give_back(finished))
        except Exception as error:  # a bug here must not leave callers waiting for ever
            logger.exception("the queue stopped on an error of its own")
            _fail(self._unanswered, ModelUnavailable(f"the queue failed ({type(error).__name__})"))

    # what is batched

    def _next_batch(self) -> Batch:
        tokens, alone = self._batch_limits()
        waiting, count = self.waiting
        if waiting > tokens and count == 1 and self._is_small(alone):
            tokens = waiting
        batch = Batch(tokens, self._new_tokens if waiting > tokens else None)
        self._batches += 1

        def take(request: QueuedRequest, spared: int = 0) -> int | None:
            """The cost of a request's next item; None if it has none, or there is no room for it."""
            if not request.waits:
                return None
            item = request.items[request.taken]
            cost = batch.add(item, spared)
            if cost is not None:
                batch.items[item].append((request, request.taken))
                request.taken, request.rank = request.taken + 1, self._batches
                request.reservation.set(request.reservation.amount - item.cost)
            return cost

        half = batch.room - batch.room // 2
        self._waiting.offer_turns(lambda request: take(request, half))
        for request in self._waiting:
            while (cost := take(request)) is not None:
                self._waiting.charge(request.caller, cost)
            if request.waits:
                break
        return batch

    def _batch_limits(self) -> tuple[int, int]:
        """Maximum tokens of the next batch, and of one that is all of a request that waits alone."""
        if (limits := self.engine.description.prompt_limits) is not None:
            return limits.batch, limits.batch
        speed = self._speed.work / self._speed.seconds if self._speed.seconds else 0.0
        alone = min(self._batch_tokens, int(_ALONE * speed))
        if self.waiting[1] == 1 and alone == self._batch_tokens:
            return alone, alone
        return min(self._batch_tokens, max(_SMALLEST, int(_MOMENT * speed))), alone

    def _is_small(self, tokens: int) -> bool:
        """Whether the oldest request has at most so many new tokens, and no batch but the very first has taken any."""
        request, trial = next(iter(self._waiting)), Batch(tokens, self._new_tokens, 4 * Batch.READ)
        if request.taken and self._batches > 1:
            return False
        return all(trial.add(item) is not None for item in request.items[request.taken :]) and trial.room >= 0

    # what is run

    async def _run(self, batch: Batch) -> Scored:
        """The scores of a batch; none if it failed, in which case its requests have the error."""
        items = tuple(batch.items)
        if not items:
            return []
        begun, waits = self._clock(), list[float]()
        requests = dict[QueuedRequest, None]()
        for request, index in chain(*batch.items.values()):
            requests[request] = None
            if index == 0:
                request.begun = begun
                waits.append(begun - request.arrived)
        try:
            # what an engine calls then belongs to the trace of the batch's first request
            scores = await self._scores(items, next(iter(requests)).trace)
        except ModelUnavailable as error:
            _fail(requests, error)
            await self._note_failure(error)
            return []
        self._failures, self._unreachable = 0, None
        tokens, seconds = sum(item.cost for item in items), self._clock() - begun
        computed, unread = sum(item.computed for item in scores), sum(item.missing for item in scores)
        known = sum(item.tokens - item.computed for item in scores if item.computed) if self._new_tokens else 0
        self._speed.add(tokens, computed + known / Batch.READ, seconds)
        self._observe(BatchFigures(len(items), tokens, computed, seconds, waits, unread))
        return list(zip(batch.items.values(), scores, strict=True))

    async def _scores(self, items: Sequence[Encoded], trace: Context) -> list[StepScores]:
        """The engine's scores, checked to be usable; raises `ModelUnavailable`. A model that hangs is lost."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._worker.call(partial(trace.run, checked_scores, self.engine, items))
        except TimeoutError:
            reason = f"the model did not answer within {self._patience:g} s"
            self._lose(reason)
            raise ModelUnavailable(reason) from None

    async def _give_back(self, finished: Scored) -> None:
        """Gives each request its scores, one after the other, so that writing answers delays no arrivals."""
        for holders, scores in finished:
            given = scores
            for request, index in holders:
                if request.done.done():  # its caller has gone
                    continue
                request.scores[index] = given
                given = scores._replace(computed=0)  # charged to the first
                if len(request.scores) == len(request.items):
                    ordered = [request.scores[number] for number in range(len(request.items))]
                    queued, took = request.begun - request.arrived, self._clock() - request.begun
                    usage = replace(Usage.from_scores(ordered), queue_ms=1000 * queued, scoring_ms=1000 * took)
                    request.done.set_result(ScoredItems(ordered, usage))
                    await asyncio.sleep(0)

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
                await self._scores([plain_sum(self.engine)], Context())
                self._failures = 0
            except ModelUnavailable:
                self._lose(f"the model failed {self._failures} times in a row, then on a plain sum")

    async def _reach(self) -> None:
        while self._unreachable is not None:
            await asyncio.sleep(self._retry)
            with suppress(UnprmError):
                await self.score([plain_sum(self.engine)])

    def _lose(self, reason: str) -> None:
        if self._lost is None:
            logger.critical("the model is lost: %s", reason)
            self._lost = f"the model is lost: {reason}"
            _fail(self._unanswered, ModelUnavailable(self._lost))
            self._on_loss()


def _fail(requests: Iterable[QueuedRequest], error: Exception) -> None:
    for request in requests:
        if not request.done.done():
            request.done.set_exception(error)


class Worker:
    """One daemon thread that runs calls in order; a call that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, including one whose caller has left."""
        return self._last is not None and not self._last.done()

    async def call(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raised. Cancelling the caller stops no call, also none that waits."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._last = future
        self._calls.put((function, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                future.set_result(function())
            except StopIteration as error:  # asyncio's futures refuse it, and their caller would wait for ever
                future.set_exception(RuntimeError(repr(error)))
            except BaseException as error:  # even a library's SystemExit must not end the thread
                future.set_exception(error)
            del call, function, future  # frees what they hold: the next call may come much later


def plain_sum(engine: Engine) -> Encoded:
    """What any model can score."""
    return engine.format.encode("1 + 1 = ?", ["2"])


def checked_scores(engine: Engine, batch: Sequence[Encoded]) -> list[StepScores]:
    """Runs in the engine's thread. Raises `ModelUnavailable`, also for what are no scores."""
    try:
        answer = engine.score(batch)
        counts = [(len(scores.values), len(item.positions)) for item, scores in zip(batch, answer, strict=False)]
        within = all(0.0 <= value <= 1.0 for scores in answer for value in scores.values)  # false for NaN, too
    except ModelUnreachable as error:
        logger.warning("a batch of %d items failed: %s", len(batch), error)
        raise
    except BaseException as error:  # a library may raise anything: every caller gets an error
        logger.exception("the model failed on a batch of %d items", len(batch))
        raise ModelUnavailable(f"the model failed on this request ({type(error).__name__})") from error
    wrong = next((f"an item has {count} scores for {steps} steps" for count, steps in counts if count != steps), None)
    if len(answer) != len(batch):
        wrong = f"it has scores for {len(answer)} of {len(batch)} items"
    elif wrong is None and not within:
        wrong = "a score is not within 0 and 1"
    if wrong is not None:
        logger.error("the model answered a batch of %d items wrongly: %s", len(batch), wrong)
        raise ModelUnavailable(f"the model's answer can't be used: {wrong}")
    return answer
