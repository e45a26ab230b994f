"""The program of a worker process: an error costs one answer, long work steps back, nothing can be opened."""

import json
import signal
import threading

import psutil
import pytest

from tests.support import PATIENCE, ROOT, until
from tests.unprm.answers.fake_worker import soon
from tests.unprm.answers.support import SLOW, run_python
from unprm.answers.worker import in_place_of, keyed, worker_command
from unprm.answers.worker_pool import WorkerDied, WorkerPool


def test_an_error_in_a_worker_means_as_text():
    class Broken:
        def __getattr__(self, name):
            raise ZeroDivisionError

    assert keyed("x", Broken()) == {"key": "only x", "unitless": "", "as_text": True, "refused": False}


@pytest.mark.parametrize(
    ("exit_code", "late", "took", "reply"),
    [
        (0, False, 1.0, {}),
        (-signal.SIGPROF, False, 0.5, {"signal": signal.SIGPROF}),  # the processor was all its own
        (-signal.SIGPROF, False, 1.0, {"late": True}),  # it had to wait for it: another time it may get on
        (-signal.SIGKILL, False, 1.0, {"signal": signal.SIGKILL}),
        (-signal.SIGKILL, True, 1.0, {"late": True}),
        (1, False, 1.0, {"signal": 0}),
    ],
)
def test_what_load_decides_is_late_and_no_verdict_on_the_answer(exit_code, late, took, reply):
    assert in_place_of(exit_code, late, took, cpu_seconds=0.5) == reply


def test_computing_an_answer_that_takes_long_steps_back():
    others = set(psutil.Process().children())
    pool = WorkerPool(worker_command(PATIENCE, 1024), 1)
    pool.start(soon())
    (worker,) = set(psutil.Process().children()) - others
    errors = []

    def ask():
        with pytest.raises(WorkerDied) as caught:
            pool.ask(SLOW, soon())
        errors.append(caught.value)

    slow = threading.Thread(target=ask)
    slow.start()
    until(lambda: [child.nice() for child in worker.children()] == [19])
    worker.children()[0].kill()
    slow.join()
    assert [error.signal for error in errors] == [signal.SIGKILL]
    assert worker.is_running()
    assert worker.children() == []
    assert pool.ask(r"\sin  x", soon()) == pool.ask(r"\sin x", soon())
    pool.close()


CONFINED = """
import socket
from unprm.answers.worker import confine
confine(512)
def refused(action):
    try:
        action()
    except (OSError, MemoryError):
        return True
print(refused(lambda: open("/etc/hostname")), refused(lambda: open("/tmp/new", "w")), refused(socket.socket),
      refused(lambda: bytearray(2**30)))
"""


def test_a_worker_opens_nothing_and_its_memory_is_bounded():
    done = run_python(CONFINED)
    assert (done.stdout, done.stderr, done.returncode) == ("True True True True\n", "", 0)


def test_a_worker_is_started_in_isolation():
    command = worker_command(0.5, 512)
    assert command[1:4] == ["-I", "-S", "-B"]
    assert json.loads(command[-1])["path"][0] == str(ROOT)
