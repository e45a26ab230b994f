"""The parent's side of the worker processes."""

import time
from contextlib import suppress

import psutil
import pytest

from tests.unprm.answers.fake_worker import FAKE, PROGRAM, soon
from tests.unprm.answers.support import SLOW
from unprm.answers.equivalence import Equivalence
from unprm.answers.mathtext.keys import AnswerKey
from unprm.answers.worker_pool import OutOfTime, WorkerDied, WorkerPool, WorkerProcess


@pytest.fixture
def pool():
    pool = WorkerPool(FAKE, 1)
    yield pool
    pool.close()


def test_a_pool_outlives_its_workers(pool):
    assert pool.ask("a", soon()) == AnswerKey("key of a")
    for trouble in ("die", "babble", "list"):
        with pytest.raises(WorkerDied):
            pool.ask(trouble, soon())
        assert pool.ask("b", soon()) == AnswerKey("key of b")
    assert pool.ask("stutter", soon()) == AnswerKey("key of stutter")
    with pytest.raises(WorkerDied):  # and not the reply that is left over
        pool.ask("b", soon())
    with pytest.raises(OutOfTime):
        pool.ask("hang", soon(1))
    assert pool.ask("c", soon()) == AnswerKey("key of c")


def test_a_slow_start_outlasts_short_requests():
    """A worker is not given up while it sets itself up, or on a busy machine none would ever be ready."""
    pool = WorkerPool([*FAKE[:-1], "import time; time.sleep(1)\n" + PROGRAM], 1)
    replies = []
    while not replies:
        with suppress(OutOfTime):
            replies.append(pool.ask("a", soon(0.2)))
    pool.close()
    assert replies == [AnswerKey("key of a")]


def test_a_worker_that_is_killed_names_its_killer():
    worker = WorkerProcess(FAKE)
    worker.wait_ready(soon())
    worker.kill()
    with pytest.raises(WorkerDied) as death:
        worker.ask("a", soon())
    assert death.value.signal == 9
    worker.dispose()
    worker.dispose()


def test_time_that_runs_out_costs_no_worker():
    others = set(psutil.Process().children())
    with Equivalence(deadline=0.3) as equivalence:
        equivalence.start()
        (worker,) = set(psutil.Process().children()) - others
        with pytest.raises(OutOfTime):
            equivalence._pool.ask(SLOW, time.monotonic())
        assert worker.is_running()
