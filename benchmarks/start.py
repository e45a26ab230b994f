"""Time from starting the server to its first score over HTTP, and time of its --help, against a Python process that
only imports torch."""

import statistics
import subprocess
import sys
import time

from benchmarks import clients, servers
from benchmarks.timing import Comparison, timed
from unprm import mini

ROUNDS = 5
_REQUEST = clients.request("/score_steps", {"problem": "What is 4 * 15?", "solutions": [["4 * 15 = 60."]]})


def run() -> list[Comparison]:
    """Measures alternately; the first round, which fills the file cache, is left out."""
    rounds = [
        (_first_score(), timed(_python, "-m", "server", "--help"), timed(_python, "-c", "import torch"))
        for _ in range(ROUNDS + 1)
    ]
    score, help, torch = map(statistics.median, zip(*rounds[1:], strict=True))
    names = f"first score of {mini.NAME} over HTTP", "the server's --help"
    return [
        Comparison(name, seconds, "`import torch` alone", torch, ROUNDS)
        for name, seconds in zip(names, (score, help), strict=True)
    ]


def _first_score() -> float:
    """Seconds from the start of the process to its first score; its termination is not counted."""
    start = time.perf_counter()
    with servers.unprm() as (url, _):
        clients.call(url, [_REQUEST], 1)
        return time.perf_counter() - start


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
