"""The program of a worker process: answers in, keys out, one JSON object per line.

    in   {"id": 7, "answer": "2x+1", "seconds": 2}   an answer in canonical spelling, and the time for it
    out  {"ready": true}                             once, when it is set up
         {"id": 7, "key": "…", "unitless": "", "as_text": false, "refused": false}
                                                     for each answer: the fields of `AnswerKey`
         {"id": 7, "late": true}                     if time ran out, or load may have kept it from its share
         {"id": 7, "signal": 27}                     if its computation was killed by this signal

The worker ends when its input does. Each answer is computed in a fork, which the kernel kills when it exceeds its share
of CPU time, and which lowers its own priority after `AT_ONCE` seconds. Once the worker is ready, neither it nor a fork
can open a file or a socket, has environment variables, or can exceed its memory limit.
"""

import ctypes
import gc
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from unprm.answers.mathtext.keys import answer_key, text_key
from unprm.answers.mathtext.scalars import Scalars

AT_ONCE = 0.02
"""Seconds of CPU time after which the computation of an answer gets the lowest priority."""
_BOOTSTRAP = (
    "import json, sys; arguments = json.loads(sys.argv[1]); sys.path += arguments['path']; "
    "from unprm.answers.worker import main; main(arguments['cpu_seconds'], arguments['memory_mb'])"
)
_KEPT_WAITING = 1.25
"""An answer that took this many times its CPU time had to wait for the processor. That it exceeds its share then says
little: load also makes computations take more CPU time than they do alone."""
_LEAST_URGENT = 19
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # CLONE_NEWNET, CLONE_NEWUSER
_WARM_UP = ("\\sin x+\\sqrt{x^{2}+1}", "\\frac{e^{2}}{\\ln 3}", "3\\sqrt{2}+\\pi i")


def worker_command(cpu_seconds: float, memory_mb: int) -> list[str]:
    """The command line of a worker: this Python, isolated, with only this package and python-flint on its path."""
    flint = importlib.util.find_spec("flint")
    if flint is None or flint.origin is None:
        raise ModuleNotFoundError("python-flint is not installed")
    path = [str(Path(__file__).parents[2]), str(Path(flint.origin).parents[1])]
    arguments = json.dumps({"path": path, "cpu_seconds": cpu_seconds, "memory_mb": memory_mb})
    return [sys.executable, "-I", "-S", "-B", "-c", _BOOTSTRAP, arguments]


def main(cpu_seconds: float, memory_mb: int) -> None:
    """Answers every line of standard input on standard output. `cpu_seconds` limits each answer."""
    scalars = Scalars(in_worker=True)
    for expression in _WARM_UP:  # imports every module while files can still be opened
        answer_key(expression, scalars)
    ended, tell_ended = os.pipe()  # gets a byte when a fork ends
    os.set_blocking(tell_ended, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(tell_ended)
    confine(memory_mb)
    gc.freeze()  # keeps memory shared with the forks
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _write(sink, {"ready": True})
    for line in source:
        question = json.loads(line)
        fork = os.fork()
        if fork == 0:
            signal.set_wakeup_fd(-1)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            signal.signal(signal.SIGVTALRM, _step_back)
            signal.setitimer(signal.ITIMER_VIRTUAL, AT_ONCE)
            # The default action of SIGPROF ends the process, even in the middle of one long multiplication.
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            _write(sink, {"id": question["id"], **keyed(question["answer"], scalars)})
            os._exit(0)
        if reply := _waited(fork, ended, question["seconds"]):
            _write(sink, {"id": question["id"], **reply})


def _step_back(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # a container may forbid it
        os.nice(_LEAST_URGENT)
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _waited(fork: int, ended: int, seconds: float) -> dict[str, object]:
    """Waits at most `seconds` for a fork, then kills it; returns the reply in its place, empty if it wrote one."""
    begun = time.monotonic()
    late = not select.select([ended], [], [], seconds)[0]
    if late:
        os.kill(fork, signal.SIGKILL)
        select.select([ended], [], [])
    os.read(ended, 1)
    _, status, used = os.wait4(fork, 0)
    took = time.monotonic() - begun
    return in_place_of(os.waitstatus_to_exitcode(status), late, took, used.ru_utime + used.ru_stime)


def in_place_of(exit_code: int, late: bool, took: float, cpu_seconds: float) -> dict[str, object]:
    """The reply in place of a fork that wrote none: it was killed as `late`, or ended after it `took` some seconds."""
    if exit_code == 0:
        return {}
    waited = exit_code == -signal.SIGPROF and took > _KEPT_WAITING * cpu_seconds
    return {"late": True} if late or waited else {"signal": max(0, -exit_code)}


def keyed(canonical: str, scalars: Scalars) -> dict[str, object]:
    """The reply to an answer; one that runs out of memory or stack, or raises an error, is compared as text."""
    try:
        return answer_key(canonical, scalars)._asdict()
    except (MemoryError, RecursionError):
        return text_key(canonical)._replace(refused=True)._asdict()
    except Exception:  # an error on one answer must not affect the next
        return text_key(canonical)._asdict()


def confine(memory_mb: int) -> None:
    """Gives up what the computation doesn't need: the network (where the kernel lets an unprivileged process do
    so: Linux with user namespaces), files, and memory beyond the limit."""
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(_NEW_USER | _NEW_NETWORK)
    limits = {
        resource.RLIMIT_AS: memory_mb * 2**20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))


def _write(sink: IO[bytes], message: dict[str, object]) -> None:
    sink.write(json.dumps(message).encode() + b"\n")
    sink.flush()
