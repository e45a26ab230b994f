"""Votes over answers that processes have to compare, while those processes are killed: every vote comes out as it does
without a server."""

import json
import random
import signal
import threading
from contextlib import suppress
from typing import Any

import psutil

from benchmarks import clients, servers
from benchmarks.timing import Comparison
from unprm import mini, votes
from unprm.equivalence import Equivalence

KILLS, EVERY, REQUESTS, CLIENTS = 50, 0.25, 2000, 8


def run() -> list[Comparison]:
    """Requests are sent over and over until all kills are done; their step scores come with them."""
    rng = random.Random(0)
    rounds: list[list[list[str]]] = []
    killed = 0
    done = threading.Event()
    with servers.unprm_process(f"--model={mini.NAME}", "--device=cpu", "--max-request-seconds=30") as (url, process):

        def kill() -> None:
            nonlocal killed
            while killed < KILLS:
                done.wait(EVERY)
                with suppress(psutil.NoSuchProcess, IndexError):
                    rng.choice(psutil.Process(process.pid).children(recursive=True)).send_signal(signal.SIGKILL)
                    killed += 1
            done.set()

        killer = threading.Thread(target=kill)
        killer.start()
        elected: list[str] = []
        taken: list[float] = []
        while not done.is_set():
            rounds.append([_answers(rng) for _ in range(REQUESTS)])
            told: dict[int, Any] = {}
            taken += clients.call(url, list(map(_request, rounds[-1])), CLIENTS, _noting(told))
            elected += [told[number]["answer"] for number in range(REQUESTS)]
        killer.join()
    with Equivalence(deadline=60.0) as equivalence:
        expected = [_elected(equivalence, answers) for asked in rounds for answers in asked]
    wrong = sum(map(str.__ne__, elected, expected))
    what = f"votes that came out right of {len(elected):,}, {killed} processes killed"
    return [Comparison(what, len(elected) - wrong, "all", len(elected), 1, "votes")]


def _noting(told: dict[int, Any]) -> clients.Note:
    def note(number: int, answer: bytes) -> None:
        told[number] = json.loads(answer)

    return note


def _answers(rng: random.Random) -> list[str]:
    """Three expressions in two spellings each, and one that is alone: which has most depends on what is equal."""
    numbers = [rng.randint(2, 10**6) for _ in range(3)]
    spelled = [(f"\\sin({n}x)+x", f"x + \\sin( {n}x )", f"\\frac{{2x+2\\sin({n}x)}}{{2}}") for n in numbers]
    return [rng.choice(own) for own in spelled for _ in range(2)] + [rng.choice(spelled[rng.randrange(3)])]


def _request(answers: list[str]) -> clients.Request:
    told = [{"steps": ["a"], "answer": answer, "step_scores": [0.5]} for answer in answers]
    return clients.request("/vote/majority", {"solutions": told})


def _elected(equivalence: Equivalence, answers: list[str]) -> str:
    return answers[votes.decide("majority", equivalence.classes(answers), None, 0.0).solution_index]
