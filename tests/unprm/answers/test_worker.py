"""The program of a worker process: an error costs one answer, long work steps back, nothing can be opened."""

import json
import threading
import time
from contextlib import suppress

import psutil

from tests.support import ROOT
from tests.unprm.answers.support import SLOW, run_python
from unprm.answers.equivalence import Equivalence
from unprm.answers.worker import keyed, worker_command


def test_an_error_in_a_worker_means_as_text():
    class Broken:
        def __getattr__(self, name):
            raise ZeroDivisionError

    assert keyed("x", Broken()) == {"key": "only x", "barer": (), "otherwise": "", "as_text": True, "refused": False}


def test_computing_an_answer_that_takes_long_steps_back():
    others = set(psutil.Process().children())
    with Equivalence(deadline=1) as equivalence:
        equivalence.start()
        slow = threading.Thread(target=equivalence.classes, args=([SLOW],))
        slow.start()
        (worker,) = set(psutil.Process().children()) - others
        seen = set()
        while slow.is_alive():
            with suppress(psutil.NoSuchProcess):
                seen |= {child.nice() for child in worker.children()}
            time.sleep(0.005)
        slow.join()
        assert 19 in seen
        assert equivalence.stats.timeouts == 1  # its share of the time is over
        assert worker.is_running()
        assert worker.children() == []
        assert equivalence.classes([r"\sin x", r"\sin  x", "x"]) == [0, 0, 1]


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
