"""The queue: batches, admission, cancellation, failures, draining. Every caller gets an answer."""

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake_engine import FakeEngine, hashed
from tests.support import PATIENCE, asynchronous, columns
from unprm.engines.model_queue import BatchFigures, ModelQueue, ScoredItems
from unprm.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelUnavailable,
    Overloaded,
    ShuttingDown,
    UnprmError,
)
from unprm.types import Encoded, PromptLimits, StepScores, Usage


def item(name: int, tokens: int = 10) -> Encoded:
    """A sequence of this length with two scored positions, another one for each name."""
    return Encoded((name,) * tokens, (0, tokens - 1))


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def values(scored: ScoredItems) -> list[tuple[float, ...]]:
    return columns(scored.scores).values


async def outcome(work: Awaitable[ScoredItems]) -> ScoredItems | UnprmError:
    try:
        return await work
    except UnprmError as error:
        return error


class Held:
    """A queue whose engine is held in a first batch, so that later requests have to wait."""

    def __init__(self, engine: FakeEngine, gate: threading.Event, **options: int) -> None:
        self.engine, self.gate = engine, gate
        self.queue = ModelQueue(engine, **options)

    async def __aenter__(self) -> ModelQueue:
        self._first = asyncio.create_task(self.queue.score([item(999)]))
        await eventually(lambda: len(self.engine.batches) == 1)
        return self.queue

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await asyncio.wait({self._first}, timeout=PATIENCE)
        await self.queue.drain(PATIENCE)


def held(**options: Any) -> tuple[FakeEngine, threading.Event, Held]:
    gate = threading.Event()
    engine = FakeEngine(gate=gate, **options.pop("engine", {}))
    return engine, gate, Held(engine, gate, **options)


def check_room(queue: ModelQueue, tokens: int = 1, caller: str = "") -> None:
    """Raises what so many more tokens of a caller are refused with."""
    with queue.reserve(tokens, caller):
        pass


async def ask(queue: ModelQueue, *items: Encoded, **options: Any) -> asyncio.Task[ScoredItems]:
    """Has the items wait in the queue."""
    task = asyncio.create_task(queue.score(items, **options))
    await asyncio.sleep(0)
    return task


@asynchronous
async def test_one_and_many_take_the_same_path() -> None:
    engine = FakeEngine()
    queue = ModelQueue(engine)
    items = [item(1), item(2, 20), item(3)]
    for request in (items, items[:1], []):
        scored = await queue.score(request)
        tokens = sum(len(one.ids) for one in request)
        expected = [StepScores(hashed(one), len(one.ids), len(one.ids)) for one in request]
        assert scored == ScoredItems(expected, Usage(tokens, tokens, 0))
    assert len(engine.batches) == 2
    await queue.drain(PATIENCE)
    assert engine.closed


@asynchronous
async def test_an_engine_runs_in_the_context_of_its_batch_s_first_request() -> None:
    """As what traces follow."""
    caller = ContextVar[float]("caller")
    engine = FakeEngine(scores=lambda item: [caller.get()] * len(item.positions))
    queue = ModelQueue(engine)
    for value in (0.25, 0.75):
        caller.set(value)
        assert values(await queue.score([item(1)])) == [(value, value)]
    await queue.drain(PATIENCE)


@asynchronous
async def test_callers_share_a_batch() -> None:
    engine, gate, place = held()
    async with place as queue:
        tasks = [
            await ask(queue, item(3), item(4)),
            await ask(queue, item(1)),
            await ask(queue, item(2)),
        ]
        assert queue.waiting == (40, 3)
        gate.set()
        results = await asyncio.gather(*tasks)
    assert engine.batches[1:] == [(item(3), item(1), item(2), item(4))]
    assert [values(result) for result in results] == [
        [hashed(item(3)), hashed(item(4))],
        [hashed(item(1))],
        [hashed(item(2))],
    ]
    assert queue.waiting == (0, 0)


@asynchronous
async def test_a_batch_keeps_to_its_budget_and_a_larger_item_runs_alone() -> None:
    engine, gate, place = held(batch_tokens=25)
    async with place as queue:
        task = await ask(queue, item(1), item(2), item(3), item(4, 100), item(5))
        gate.set()
        scored = await task
    assert engine.batches[1:] == [(item(1), item(2)), (item(3),), (item(4, 100),), (item(5),)]
    assert scored.usage == Usage(140, 140, 0)


@asynchronous
async def test_equal_sequences_of_a_batch_run_once_and_the_first_pays() -> None:
    engine, gate, place = held(batch_tokens=20)
    async with place as queue:
        tasks = [
            await ask(queue, item(1), item(1), item(2)),
            await ask(queue, item(2)),
            await ask(queue, Encoded(item(2).ids, (0,))),
        ]
        gate.set()
        results = await asyncio.gather(*tasks)
    assert engine.batches[1:] == [(item(1), item(2)), (Encoded(item(2).ids, (0,)),)]
    assert [result.usage for result in results] == [Usage(30, 20, 10), Usage(10, 0, 10), Usage(10, 10, 0)]
    assert values(results[0]) == [hashed(item(1)), hashed(item(1)), hashed(item(2))]


@asynchronous
async def test_one_that_asks_little_does_not_wait_for_those_who_ask_much() -> None:
    engine, gate, place = held(batch_tokens=40)
    async with place as queue:
        votes = [await ask(queue, *(item(100 * vote + k) for k in range(20))) for vote in range(3)]
        single = await ask(queue, item(1000))
        late = await ask(queue, item(1001))
        gate.set()
        await asyncio.gather(*votes, single, late)
    first = [{one.ids[0] for one in batch} for batch in engine.batches[1:]]
    # half of a batch goes around, the other half to the first
    assert first[:3] == [{0, 1, 2, 100}, {200, 1000, 3, 4}, {1001, 101, 5, 6}]
    assert max(k for k, batch in enumerate(first) if batch & set(range(100))) < 10  # two of its twenty in each
    assert len(first) == 16  # full to the end


@asynchronous
async def test_equal_callers_get_equal_shares_of_what_goes_around() -> None:
    engine, gate, place = held(batch_tokens=80)
    async with place as queue:
        tasks = [await ask(queue, *(item(100 * caller + k) for k in range(9))) for caller in range(2)]
        gate.set()
        await asyncio.gather(*tasks)
    callers = [[one.ids[0] // 100 for one in batch] for batch in engine.batches[1:]]
    assert callers == [[0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1, 1, 1], [1, 1]]


@asynchronous
async def test_callers_share_alike_whatever_the_number_of_their_requests() -> None:
    engine, gate, place = held(batch_tokens=80)
    async with place as queue:
        many = [await ask(queue, item(k), item(100 + k), caller="many") for k in range(8)]
        one = await ask(queue, *(item(200 + k) for k in range(4)), caller="one")
        gate.set()
        await asyncio.gather(*many, one)
    callers = [["one" if sequence.ids[0] >= 200 else "many" for sequence in batch] for batch in engine.batches[1:]]
    # of the four that go around in each batch, two are each caller's; the other four are the first requests'
    assert [batch.count("one") for batch in callers] == [2, 2, 0]


@asynchronous
async def test_what_the_oldest_get_counts_as_their_caller_s() -> None:
    engine, gate, place = held(batch_tokens=80)
    async with place as queue:
        first = await ask(queue, *(item(k) for k in range(50)), caller="first")
        second = await ask(queue, *(item(100 + k) for k in range(50)), caller="second")
        gate.set()
        await asyncio.gather(first, second)
    shares = [sum(sequence.ids[0] < 100 for sequence in batch) for batch in engine.batches[1:11]]
    assert shares == [6, *[4] * 9]


@asynchronous
async def test_who_comes_while_a_batch_runs_is_before_those_whose_batch_it_is() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    queue = ModelQueue(engine, batch_tokens=10)
    many = [await ask(queue, *(item(10 * k + n) for n in range(3)), caller="many") for k in range(2)]
    await eventually(lambda: len(engine.batches) == 1)
    one = await ask(queue, item(99), caller="one")
    gate.set()
    await asyncio.gather(*many, one)
    assert engine.batches[1] == (item(99),)
    await queue.drain(PATIENCE)


@asynchronous
async def test_the_oversized_item_shares_with_its_equals() -> None:
    engine, gate, place = held(batch_tokens=20)
    async with place as queue:
        task = await ask(queue, item(1, 50), item(1, 50))
        gate.set()
        assert (await task).usage == Usage(100, 50, 50)
    assert engine.batches[1:] == [(item(1, 50),)]


@asynchronous
async def test_admission_is_all_or_nothing() -> None:
    engine, gate, place = held(max_queued_tokens=100)
    async with place as queue:
        waiting = await ask(queue, item(1), item(2), item(3))
        check_room(queue, 20)
        with pytest.raises(Overloaded) as refused:
            await queue.score([item(4), item(5), item(6)])
        assert refused.value.retry_after >= 1
        fitting = await ask(queue, item(7), item(8))
        for tokens in (1, 10):
            with pytest.raises(Overloaded):
                check_room(queue, tokens)
        gate.set()
        await asyncio.gather(waiting, fitting)
    ran = {one for batch in engine.batches for one in batch}
    assert not ran & {item(4), item(5), item(6)}


@pytest.mark.parametrize("tokens", [10, 50, 60, 500])
@asynchronous
async def test_what_a_caller_has_wait_leaves_room_for_others_and_the_server_ready(tokens: int) -> None:
    """However large its requests are, and however many of them come."""
    _, gate, place = held(max_queued_tokens=100)
    async with place as queue:
        many = [asyncio.create_task(outcome(queue.score([item(k, tokens)], caller="many"))) for k in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            check_room(queue, tokens, "many")
        one, other = await ask(queue, item(100, 20), caller="one"), await ask(queue, item(101, 10), caller="other")
        queue.check_ready()
        gate.set()
        assert values(await one) + values(await other) == [hashed(item(100, 20)), hashed(item(101, 10))]
        taken = [answer for answer in await asyncio.gather(*many) if isinstance(answer, ScoredItems)]
        assert len(taken) == max(1, 50 // tokens)
        check_room(queue, 50, "many")  # all that was held is given back


@pytest.mark.parametrize(("tokens", "taken"), [(None, False), (14, False), (15, True)])
@asynchronous
async def test_a_reservation_is_enough_if_the_estimate_was_not_far_off(tokens: int | None, taken: bool) -> None:
    _, gate, place = held(max_queued_tokens=100)
    async with place as queue:
        waiting = await ask(queue, item(1), item(2), item(3))
        with nullcontext() if tokens is None else queue.reserve(tokens) as reservation:
            late = await ask(queue, item(4), item(5), item(6), reservation=reservation)
        gate.set()
        assert isinstance(await outcome(late), ScoredItems if taken else Overloaded)
        await waiting


@asynchronous
async def test_reserved_room_is_kept_until_its_request_waits() -> None:
    _, gate, place = held(max_queued_tokens=100)
    async with place as queue:
        waiting = await ask(queue, item(1))
        with queue.reserve(30) as reservation:
            check_room(queue, 10)
            with pytest.raises(Overloaded, match=r"40 tokens of this caller .* and 11 more .* for others, 49 of 100"):
                check_room(queue, 11)
            reserved = await ask(queue, item(2), reservation=reservation)
            check_room(queue, 30)
            with pytest.raises(Overloaded):
                check_room(queue, 31)
        with pytest.raises(RuntimeError), queue.reserve(30):
            raise RuntimeError  # a caller that leaves
        check_room(queue, 30)
        gate.set()
        await asyncio.gather(waiting, reserved)


@asynchronous
async def test_answers_of_a_batch_are_handed_out_one_at_a_time() -> None:
    """So that whatever arrived meanwhile gets its turn between two of them."""
    engine, gate, place = held()
    turns, seen = itertools.count(), []

    async def answered(task: asyncio.Task[ScoredItems]) -> None:
        await task
        seen.append(turn)

    async with place as queue:
        callers = [asyncio.create_task(answered(await ask(queue, item(number)))) for number in range(4)]
        gate.set()
        while len(seen) < len(callers):
            turn = next(turns)
            await asyncio.sleep(0)
    assert len(engine.batches) == 2
    assert len(set(seen)) == len(callers)


@asynchronous
async def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    queue = ModelQueue(FakeEngine(), batch_tokens=20, max_queued_tokens=30)
    scored = await queue.score([item(number) for number in range(10)])
    assert scored.usage.computed_tokens == 100
    await queue.drain(PATIENCE)


@asynchronous
async def test_retry_after_follows_the_measured_speed() -> None:
    gate = threading.Event()
    gate.set()
    engine = FakeEngine(gate=gate)
    ticks = (tick / 10 for tick in itertools.count())
    queue = ModelQueue(engine, batch_tokens=10, max_queued_tokens=1000, clock=ticks.__next__)
    await queue.score([item(0)])  # 10 tokens in 0.1 s
    gate.clear()
    running = await ask(queue, item(1))
    await eventually(lambda: len(engine.batches) == 2)
    waiting = await ask(queue, item(2, 1000))
    with pytest.raises(Overloaded) as refused:
        await queue.score([item(3, 500)])
    assert refused.value.retry_after == pytest.approx(10)  # the 1000 that wait, at 100 a second
    gate.set()
    await asyncio.gather(running, waiting)
    await queue.drain(PATIENCE)


class Timed(FakeEngine):
    """An engine whose clock goes on by the seconds that it says its batches take: so many tokens in each."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self.per_second, self.now = per_second, 0.0

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        self.now += sum(len(one.ids) for one in batch) / self.per_second
        return super().score(batch)


@pytest.mark.parametrize(("per_second", "most"), [(1e2, 256), (1e4, 2500), (1e6, 16_384)])
@asynchronous
async def test_a_batch_takes_a_moment_whatever_the_model_s_speed(per_second: float, most: int) -> None:
    engine = Timed(per_second)
    queue = ModelQueue(engine, clock=lambda: engine.now)
    await queue.score([item(k, 256) for k in range(300)], caller="many")
    sizes = [sum(len(one.ids) for one in batch) for batch in engine.batches]
    assert most - 256 < max(sizes) <= most
    assert sizes[0] <= 256  # before its speed is known
    await queue.drain(PATIENCE)


class Once(Timed):
    """Runs each prefix once, also one of an earlier batch, which takes a while to read."""

    def __init__(self, per_second: float) -> None:
        super().__init__(per_second)
        self.known = set[tuple[int, ...]]()

    def new_tokens(self, item: Encoded) -> int:
        return len({item.ids[:length] for length in range(1, len(item.ids) + 1)} - self.known)

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        computed = []
        for one in batch:
            computed.append(self.new_tokens(one))
            self.known |= {one.ids[:length] for length in range(1, len(one.ids) + 1)}
        work = sum(new + (len(one.ids) - new) / 8 for new, one in zip(computed, batch, strict=True) if new)
        self.now += work / self.per_second
        scores = FakeEngine.score(self, batch)
        return [each._replace(computed=new) for each, new in zip(scores, computed, strict=True)]


@asynchronous
async def test_a_prefix_that_the_model_runs_once_counts_once() -> None:
    model = Once(1e4)
    queue = ModelQueue(model, clock=lambda: model.now)
    await queue.score([item(1000 + k, 256) for k in range(40)])  # its speed is known now
    shared = [Encoded((7,) * 200 + (k,) * 56, (255,)) for k in range(200)]
    requests = [await ask(queue, *shared[start : start + 4], caller=f"{start}") for start in range(0, 200, 4)]
    first = len(model.batches) + 1  # the first was taken when the others were not there yet
    await asyncio.gather(*requests)
    assert max(map(len, model.batches[first:])) == 2500 // (56 + 200 // 8)
    await queue.drain(PATIENCE)


@pytest.mark.parametrize(("solutions", "batches"), [(64, [1, 1, 1, 1]), (160, [4, 4, 4, 5])])
@asynchronous
async def test_a_search_has_a_batch_for_each_request_as_long_as_its_new_tokens_are_few(
    solutions: int, batches: list[int]
) -> None:
    model = Once(6000)  # as unprm-mini on a slow processor
    queue = ModelQueue(model, clock=lambda: model.now)
    await queue.score([item(1000, 100)])
    for depth, expected in enumerate(batches, 1):
        beams = [Encoded((7,) * 100 + (k,) * 20 * depth, (0,)) for k in range(1000, 1000 + solutions)]
        before = len(model.batches)
        await queue.score(beams)
        assert len(model.batches) - before == expected
    await queue.drain(PATIENCE)


@pytest.mark.parametrize(("per_second", "alone"), [(33_000, 16_384), (32_000, 8000)])
@asynchronous
async def test_a_request_that_waits_alone_gets_a_full_batch_where_that_is_short(per_second: int, alone: int) -> None:
    engine = Timed(per_second)
    queue = ModelQueue(engine, clock=lambda: engine.now)
    await queue.score([item(k, 256) for k in range(200)])  # its speed is known now
    before = len(engine.batches)
    await queue.score([item(k, 256) for k in range(200)])
    requests = [await ask(queue, *(item(1000 * n + k, 256) for k in range(100))) for n in range(2)]
    together = len(engine.batches) + 1  # the first was taken when the second was not there yet
    await asyncio.gather(*requests)
    first, second = (sum(len(one.ids) for one in engine.batches[number]) for number in (before, together))
    assert alone - 256 < first <= alone
    assert per_second // 4 - 2 * 256 < second <= per_second // 4
    await queue.drain(PATIENCE)


@asynchronous
async def test_a_small_request_overtakes_a_large_one_on_a_slow_model() -> None:
    engine = Timed(1e3)
    queue = ModelQueue(engine, clock=lambda: engine.now)
    large = await ask(queue, *(item(k, 256) for k in range(200)), caller="many")
    await eventually(lambda: len(engine.batches) > 5)
    before = engine.now
    await queue.score([item(1000)], caller="one")
    assert engine.now - before < 3  # the batch that runs, and its own: not 51 seconds
    assert not large.done()
    await large
    await queue.drain(PATIENCE)


@asynchronous
async def test_what_is_cached_does_not_make_a_model_seem_fast() -> None:
    class Cached(Timed):
        def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
            new = [one for one in batch if one.ids[0] >= 1000]
            self.now += sum(len(one.ids) for one in new) / self.per_second
            scores = FakeEngine.score(self, batch)
            return [
                each._replace(computed=len(one.ids) * (one in new)) for each, one in zip(scores, batch, strict=True)
            ]

    engine = Cached(1e4)
    queue = ModelQueue(engine, clock=lambda: engine.now)
    for _ in range(2):
        await queue.score([item(1000 + k, 256) for k in range(100)])
        await queue.score([item(k, 256) for k in range(100)])
    assert max(sum(len(one.ids) for one in batch) for batch in engine.batches) <= 2500
    await queue.drain(PATIENCE)


@asynchronous
async def test_a_judge_s_batch_is_counted_by_its_prompts_and_a_request_is_bounded() -> None:
    engine = FakeEngine()
    engine.description = engine.description.model_copy(update={"prompt_limits": PromptLimits(batch=100, request=250)})
    queue = ModelQueue(engine, batch_tokens=10, max_queued_tokens=1000)
    items = [replace(item(k), asked=50) for k in range(5)]
    await queue.score(items)
    assert [len(batch) for batch in engine.batches] == [2, 2, 1]
    with pytest.raises(InvalidRequest, match="would take 251 tokens, the limit is 250") as refused:
        await queue.score([*items[:4], replace(item(5), asked=51)])
    assert refused.value.pointer == "/solutions"
    assert len(engine.batches) == 3
    await queue.drain(PATIENCE)


@asynchronous
async def test_equal_sequences_of_different_scopes_each_run() -> None:
    engine, gate, place = held()
    async with place as queue:
        tasks = [await ask(queue, replace(item(1), scope=scope)) for scope in ("a", "b", "b")]
        gate.set()
        results = await asyncio.gather(*tasks)
    assert [result.usage for result in results] == [Usage(10, 10, 0), Usage(10, 10, 0), Usage(10, 0, 10)]
    assert engine.batches[1:] == [(replace(item(1), scope="a"), replace(item(1), scope="b"))]


@asynchronous
async def test_a_cancelled_caller_frees_its_place_and_never_runs() -> None:
    engine, gate, place = held()
    async with place as queue:
        gone, staying = await ask(queue, item(1)), await ask(queue, item(2), item(3))
        gone.cancel()
        await asyncio.wait({gone})
        assert queue.waiting == (20, 1)
        gate.set()
        await staying
    assert engine.batches[1:] == [(item(2), item(3))]


@asynchronous
async def test_a_caller_cancelled_in_the_middle_stops_there_and_harms_nobody() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    queue = ModelQueue(engine, batch_tokens=20)
    gone = await ask(queue, item(1), item(2), item(3), item(4))
    other = await ask(queue, item(5))
    await eventually(lambda: len(engine.batches) == 1)
    gone.cancel()
    gate.set()
    assert values(await other) == [hashed(item(5))]
    assert engine.batches == [(item(1), item(2)), (item(5),)]
    await queue.drain(PATIENCE)


@asynchronous
async def test_who_stays_pays_for_an_equal_sequence_of_who_left() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    queue = ModelQueue(engine)
    gone, other = await ask(queue, item(1)), await ask(queue, item(1))
    await eventually(lambda: len(engine.batches) == 1)
    gone.cancel()
    gate.set()
    assert (await other).usage == Usage(10, 10, 0)
    await queue.drain(PATIENCE)


@asynchronous
async def test_what_waits_past_its_deadline_never_runs() -> None:
    engine, gate, place = held()
    async with place as queue:
        deadline = asyncio.get_running_loop().time() + 0.03
        late = await ask(queue, item(1), deadline=deadline)
        assert isinstance(await outcome(late), DeadlineExceeded)
        assert queue.waiting[0] == 0
        gate.set()
        await queue.score([item(2)])
    assert engine.batches[1:] == [(item(2),)]


@asynchronous
async def test_a_deadline_that_passed_while_the_loop_was_busy_counts() -> None:
    engine, gate, place = held()
    async with place as queue:
        loop = asyncio.get_running_loop()
        late = await ask(queue, item(1), deadline=loop.time() + 0.01)
        gate.set()
        time.sleep(0.05)  # the batch ends, and then the deadline passes, before the loop sees either
        assert isinstance(await outcome(late), DeadlineExceeded)
    assert engine.batches[1:] == []


@asynchronous
async def test_a_deadline_in_the_past_is_refused_at_once() -> None:
    engine = FakeEngine()
    queue = ModelQueue(engine)
    with pytest.raises(DeadlineExceeded):
        await queue.score([item(1)], deadline=asyncio.get_running_loop().time() - 1)
    await queue.drain(PATIENCE)
    assert engine.batches == []


@pytest.mark.parametrize("failure", [RuntimeError("out of memory"), StopIteration(), SystemExit(3)])
@asynchronous
async def test_a_failing_batch_answers_every_waiter_and_the_next_one_runs(failure: BaseException) -> None:
    _, gate, place = held(engine={"failures": {1: failure}})
    async with place as queue:
        tasks = [await ask(queue, item(1)), await ask(queue, item(2))]
        gate.set()
        errors = await asyncio.gather(*map(outcome, tasks))
        assert [type(error) for error in errors] == [ModelUnavailable, ModelUnavailable]
        assert "out of memory" not in str(errors[0])
        assert values(await queue.score([item(1)])) == [hashed(item(1))]


@asynchronous
async def test_a_failing_batch_takes_the_rest_of_its_requests_out_of_the_queue() -> None:
    engine, gate, place = held(engine={"failures": {1: RuntimeError()}}, batch_tokens=10)
    async with place as queue:
        task = await ask(queue, item(1), item(2), item(3))
        gate.set()
        assert isinstance(await outcome(task), ModelUnavailable)
        assert queue.waiting[0] == 0
        await queue.score([item(4)])
    assert engine.batches[1:] == [(item(1),), (item(4),)]


@pytest.mark.parametrize(
    "scores",
    [[0.5], [0.5] * 3, [0.5, math.nan], [0.5, 1.01], [-0.01, 0.5], [0.5, math.inf], [0.5, None], None],
)
@asynchronous
async def test_what_is_no_score_is_never_passed_on(scores: Any) -> None:
    queue = ModelQueue(FakeEngine(scores=lambda _: scores))
    assert isinstance(await outcome(queue.score([item(1)])), ModelUnavailable)
    await queue.drain(PATIENCE)


@asynchronous
async def test_scores_for_fewer_items_than_requested_are_never_passed_on() -> None:
    class Forgetful(FakeEngine):
        def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
            return super().score(batch)[1:]

    queue = ModelQueue(Forgetful())
    assert isinstance(await outcome(queue.score([item(1), item(2)])), ModelUnavailable)
    await queue.drain(PATIENCE)


@asynchronous
async def test_draining_finishes_what_waits_and_refuses_what_comes() -> None:
    engine, gate, place = held()
    async with place as queue:
        waiting = await ask(queue, item(1))
        drain = asyncio.create_task(queue.drain(PATIENCE))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDown):
            await queue.score([item(2)])
        with pytest.raises(ShuttingDown):
            check_room(queue)
        gate.set()
        assert values(await waiting) == [hashed(item(1))]
        await drain
    assert engine.closed
    assert engine.batches[1:] == [(item(1),)]


@asynchronous
async def test_draining_answers_what_the_engine_does_not_finish_in_time() -> None:
    engine, gate, place = held()
    async with place as queue:
        waiting = await ask(queue, item(1))
        drain = asyncio.create_task(queue.drain(0.05))
        assert isinstance(await outcome(waiting), ShuttingDown)
        await drain  # does not wait for the engine
        gate.set()
    await eventually(lambda: engine.closed)
    assert engine.batches[1:] == []


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=1, max_size=12),
    cancelled=st.sets(st.integers(0, 11)),
    failing=st.sets(st.integers(0, 8)),
    batch_tokens=st.integers(1, 60),
    room=st.integers(1, 200),
)
@asynchronous
async def test_every_caller_is_answered_with_its_own_scores(
    sizes: list[list[int]], cancelled: set[int], failing: set[int], batch_tokens: int, room: int
) -> None:
    engine = FakeEngine(failures={call: RuntimeError() for call in failing})
    queue = ModelQueue(engine, batch_tokens=batch_tokens, max_queued_tokens=room)
    names = itertools.cycle(range(4))  # few, so that sequences repeat
    requests = [[item(next(names), size) for size in request_sizes] for request_sizes in sizes]
    tasks = [await ask(queue, *request) for request in requests]
    for index in cancelled & set(range(len(tasks))):
        tasks[index].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for request, result in zip(requests, results, strict=True):
        if isinstance(result, ScoredItems):
            assert values(result) == [hashed(one) for one in request]
            assert result.usage.tokens == sum(len(one.ids) for one in request)
            assert result.usage.computed_tokens + result.usage.cached_tokens == result.usage.tokens
        else:
            assert isinstance(result, Overloaded | ModelUnavailable | asyncio.CancelledError)
    assert queue.waiting == (0, 0)
    for batch in engine.batches:
        assert len(set(batch)) == len(batch)
        assert len(batch) == 1 or sum(len(one.ids) for one in batch) <= batch_tokens
    await queue.drain(PATIENCE)


@asynchronous
async def test_a_model_that_hangs_is_lost_and_nobody_waits_for_it() -> None:
    events: list[str] = []
    engine = FakeEngine(gate=threading.Event())  # never set
    queue = ModelQueue(engine, batch_tokens=10, patience=0.05, on_loss=lambda: events.append("lost"))
    first, second = (asyncio.create_task(outcome(queue.score([item(k)]))) for k in range(2))
    for answer in await asyncio.gather(first, second):
        assert isinstance(answer, ModelUnavailable)
        assert "did not answer within 0.05 s" in str(answer)
    with pytest.raises(ModelUnavailable, match="lost"):
        await queue.score([item(3)])
    with pytest.raises(ModelUnavailable, match="lost"):
        check_room(queue)
    assert events == ["lost"]
    await eventually(lambda: len(engine.batches) > 0)  # its thread may have begun after the patience was over
    assert len(engine.batches) == 1
    await queue.drain(PATIENCE)


@pytest.mark.parametrize("failing", [3, 100])
@asynchronous
async def test_a_model_that_fails_again_and_again_is_put_to_the_test(failing: int) -> None:
    events: list[str] = []
    failures = {call: RuntimeError("CUDA error") for call in range(failing)}
    engine = FakeEngine(failures=failures)
    queue = ModelQueue(engine, on_loss=lambda: events.append("lost"))
    for number in range(3):
        assert isinstance(await outcome(queue.score([item(number)])), ModelUnavailable)
    await eventually(lambda: len(engine.batches) == 4)
    if failing == 3:  # it was the requests
        assert values(await queue.score([item(3)])) == [hashed(item(3))]
    else:
        await eventually(lambda: bool(events))
        with pytest.raises(ModelUnavailable, match="3 times in a row, then on a plain sum"):
            await queue.score([item(3)])
    assert events == ([] if failing == 3 else ["lost"])
    await queue.drain(PATIENCE)


@asynchronous
async def test_a_success_in_between_clears_a_model() -> None:
    engine = FakeEngine(failures={call: RuntimeError() for call in (0, 1, 3, 4)})
    queue = ModelQueue(engine)
    answers = [await outcome(queue.score([item(number)])) for number in range(6)]
    assert [isinstance(answer, ScoredItems) for answer in answers] == [False, False, True, False, False, True]
    assert len(engine.batches) == 6  # no plain sum among them
    await queue.drain(PATIENCE)


@asynchronous
async def test_every_batch_is_observed() -> None:
    figures: list[BatchFigures] = []
    _, gate, place = held(batch_tokens=20, observe=figures.append)
    async with place as queue:
        tasks = [await ask(queue, item(1), item(1), item(2), item(3)), await ask(queue, item(2))]
        gate.set()
        await asyncio.gather(*tasks)
    assert [(batch.items, batch.tokens, batch.computed, len(batch.waits)) for batch in figures] == [
        (1, 10, 10, 1),
        (2, 20, 20, 1),
        (2, 20, 20, 1),
    ]
    assert all(0 <= wait < PATIENCE for batch in figures for wait in batch.waits)
    assert all(0 <= batch.seconds < PATIENCE for batch in figures)
