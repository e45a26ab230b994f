"""However a request ends, it gives back all that it was given."""

import threading
from collections.abc import Callable

import pytest

from server.models.model import Model
from tests.fake_engine import FakeEngine
from tests.server.harness import Background, Running, ask, raw, serving
from tests.support import until
from unprm.fair_shares import Reservation

PATH = "/score_steps"
LONG = "x" * 9000
"""More than the model reads."""


def answered(running: Running, release: threading.Event) -> None:
    release.set()
    assert running.post(PATH, ask("a", "b")).status_code == 200


def invalid(running: Running, release: threading.Event) -> None:
    assert running.post(PATH, {"solutions": 7}).status_code == 422


def too_long(running: Running, release: threading.Event) -> None:
    assert running.post(PATH, ask("a", LONG, on_invalid="refuse")).json()["code"] == "solution_too_long"


def failed(running: Running, release: threading.Event) -> None:
    release.set()
    assert running.post(PATH, ask("fails")).json()["code"] == "model_unavailable"


def gone(running: Running, release: threading.Event) -> None:
    with running.connect(raw(ask("a", "b"))):
        until(lambda: running.metric("unprm_running_requests") == 1)
        until(lambda: engine_of(running).batches)


def late(running: Running, release: threading.Event) -> None:
    response = running.post(PATH, ask("a", "b"), headers={"X-Request-Timeout": "0.2"})
    assert response.json()["code"] == "deadline_exceeded"


def stopped(running: Running, release: threading.Event) -> None:
    waiting = Background(lambda: running.post(PATH, ask("a", "b")))
    until(lambda: engine_of(running).batches)
    running.server.should_exit = True  # it drains for no time
    assert waiting.result().json()["code"] == "shutting_down"


def refused(running: Running, release: threading.Event) -> None:
    """A second model has no room, when the first one's is taken already."""
    room = running.service.models._served[1].queue.room
    with Reservation(room, "127.0.0.1/32") as held:
        held.take(room.limit)
        assert running.post(PATH, ask("a", "b", model=["one", "two"])).status_code == 429


def engine_of(running: Running) -> FakeEngine:
    engine = running.service.models._served[0].engine
    assert isinstance(engine, FakeEngine)
    return engine


def held(running: Running) -> list[int]:
    """What requests hold: places, bytes, and of each model its use, its encoders and its queue."""
    admission, found = running.service.admission, list[int]()
    for model in running.service.models._served:
        found += [model.use.count, model._encoded.taken, model.queue.room.taken]
    return [admission.running.count, admission.bodies.taken, *found]


@pytest.mark.parametrize("end", [answered, invalid, too_long, failed, gone, late, stopped, refused])
def test_whatever_the_end_all_is_given_back_once(
    end: Callable[[Running, threading.Event], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "PIECE", 1)  # so that short texts take room, too
    release = threading.Event()
    failures = {0: RuntimeError()} if end is failed else {}
    models = {"one": FakeEngine(gate=release, failures=failures), "two": FakeEngine()}
    with serving(models, drain_seconds=0.0) as running:
        service = running.service
        assert held(running) == [0] * 8
        end(running, release)
        until(lambda: service.admission.running.count == 0)
        release.set()
        assert held(running) == [0] * 8
