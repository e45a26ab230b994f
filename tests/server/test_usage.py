"""The times in `usage`, by a clock that only the test and its engine move."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.fake_engine import FakeEngine, FakeFormat
from tests.server.harness import Background, Running, ask, boxed, serving
from tests.support import until
from unprm.types import Encoded

ENCODING, SCORING = 0.25, 2.0


class Clock:
    """A time in seconds that `pass_by` alone moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class SlowFormat(FakeFormat):
    """Takes `ENCODING` seconds for each solution."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        self.clock.pass_by(ENCODING)
        return super().encode(problem, steps)


def timed(clock: Clock, gate: threading.Event | None = None) -> FakeEngine:
    """An engine that takes `SCORING` seconds for each solution."""

    def scores(item: Encoded) -> list[float]:
        clock.pass_by(SCORING)
        return [0.5] * len(item.positions)

    engine = FakeEngine(scores=scores, gate=gate)
    engine.format = SlowFormat(clock)
    return engine


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def running(clock: Clock) -> Iterator[Running]:
    with serving(timed(clock), clock=clock) as running:
        yield running


def times(body: dict[str, dict[str, float]]) -> tuple[float, float, float]:
    """Milliseconds of a response: tokenization, queue, scoring."""
    usage = body["usage"]
    return usage["tokenization_ms"], usage["queue_ms"], usage["scoring_ms"]


@pytest.mark.parametrize("path", ["/score_steps", "/vote", "/vote/wrf", "/vote/compare"])
def test_every_response_tells_what_took_its_time(running: Running, path: str) -> None:
    body = running.post(path, ask(boxed(1), boxed(2))).json()
    assert times(body) == (1000 * 2 * ENCODING, 0, 1000 * 2 * SCORING)


@pytest.mark.parametrize("path", ["/vote/majority", "/vote/hmr"])
def test_a_vote_without_a_model_takes_no_time_of_it(running: Running, path: str) -> None:
    assert times(running.post(path, ask(boxed(1), boxed(1), boxed(2))).json()) == (0, 0, 0)


def test_times_of_several_models_add_up(clock: Clock) -> None:
    with serving({"a": timed(clock), "b": FakeEngine()}, clock=clock) as running:
        usage = running.post("/score_steps", ask("x", model=["a", "b"])).json()["usage"]
    assert usage["tokenization_ms"] >= 1000 * ENCODING
    assert usage["scoring_ms"] >= 1000 * SCORING


def test_the_queue_s_time_ends_where_the_first_batch_begins(clock: Clock) -> None:
    gate = threading.Event()
    engine = timed(clock, gate)
    with serving(engine, clock=clock) as running:
        first = Background(lambda: running.post("/score_steps", ask("first")))
        until(lambda: len(engine.batches) == 1)
        second = Background(lambda: running.post("/score_steps", ask("second")))
        until(lambda: running.metric("unprm_queued_requests") == 1)
        clock.pass_by(1.5)
        gate.set()
        assert first.result().status_code == 200
        waited = 1000 * (1.5 + SCORING)  # until the first one's batch ended
        assert times(second.result().json()) == (1000 * ENCODING, waited, 1000 * SCORING)
