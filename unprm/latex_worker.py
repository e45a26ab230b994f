"""The program of a worker process: answers in, keys out, one JSON object per line.

    in   {"id": 7, "answer": "2x+1"}               an answer in canonical spelling
    out  {"ready": true}                           once, when it is set up
         {"id": 7, "key": "…", "refused": false}   for each answer; refused: a guard forbade to compute it

It ends when its input does, and the kernel ends it when one answer takes more than its share of CPU time. It
opens no file and no socket once it is ready, has no environment, and its memory is bounded.
"""

import ctypes
import json
import resource
import signal
import sys
from typing import IO

from unprm.mathtext.meaning import Meaning, meaning_key, text_key
from unprm.mathtext.numeric import numeric_key
from unprm.mathtext.scalars import Scalars

_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # CLONE_NEWNET, CLONE_NEWUSER
_WARM_UP = ("\\sin x+\\sqrt{x^{2}+1}", "\\frac{e^{2}}{\\ln 3}", "3\\sqrt{2}+\\pi i")


def main(cpu_seconds: float, memory_mb: int) -> None:
    """Answers every line of standard input on standard output. `cpu_seconds` bounds each answer."""
    scalars = Scalars(numeric_key)
    for expression in _WARM_UP:  # so that every module is imported before no file can be opened
        meaning_key(expression, Meaning(scalars))
    confine(memory_mb)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _write(sink, {"ready": True})
    for line in source:
        # The default action of SIGPROF ends the process, also in the middle of one long multiplication.
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        question = json.loads(line)
        reply = keyed(question["answer"], scalars)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(sink, {"id": question["id"], **reply})


def keyed(canonical: str, scalars: Scalars) -> dict[str, object]:
    """The reply to an answer; one that runs out of memory or stack is compared as text."""
    meaning = Meaning(scalars)
    try:
        return {"key": meaning_key(canonical, meaning), "refused": meaning.refused}
    except (MemoryError, RecursionError):
        return {"key": text_key(canonical), "refused": True}


def confine(memory_mb: int) -> None:
    """Gives up what the computation doesn't need: the network (where the kernel lets an ordinary process do
    so: Linux with user namespaces), files, further processes, and memory beyond the bound."""
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(_NEW_USER | _NEW_NETWORK)
    limits = {
        resource.RLIMIT_AS: memory_mb * 2**20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))


def _write(sink: IO[bytes], message: dict[str, object]) -> None:
    sink.write(json.dumps(message).encode() + b"\n")
    sink.flush()
