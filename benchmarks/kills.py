"""Votes while the worker processes that compare answers are killed, and scores of two replicas under Ray Serve while
replicas are killed: every answer must be the same as without a server."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import clients, mixed, models, servers
from benchmarks.timing import Comparison
from unprm import mini
from unprm.answers.equivalence import Equivalence
from unprm.models.load import load_engine
from unprm.votes import decide as votes

KILLS, EVERY, REQUESTS, CLIENTS = 50, 0.25, 2000, 8
DEATHS, DISTINCT, CALLERS, CLOSE = 20, 80, 4, 1e-4
"""Numbers of replicas killed, distinct requests and clients; tolerance for scores, which depend on the batch."""
DOCUMENTED = {200, 429, 503, 504}
"""Statuses that a client may get while replicas die."""


def run() -> list[Comparison]:
    """Kills first the worker processes, then the replicas."""
    return [_comparers(), *_replicas()]


def _comparers() -> Comparison:
    """Sends requests, which include step scores, until all kills are done."""
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
            replies: dict[int, Any] = {}
            taken += clients.call(url, list(map(_request, rounds[-1])), CLIENTS, _noting(replies))
            elected += [replies[number]["answer"] for number in range(REQUESTS)]
        killer.join()
    with Equivalence(deadline=60.0) as equivalence:
        expected = [_elected(equivalence, answers) for batch in rounds for answers in batch]
    wrong = sum(map(str.__ne__, elected, expected))
    what = f"votes that came out right of {len(elected):,}, {killed} processes killed"
    return Comparison(what, len(elected) - wrong, "all", len(elected), 1, "votes")


def _replicas() -> list[Comparison]:
    """Kills a replica whenever both answer. Answers with status 200 are compared with the engine alone."""
    queries = mixed.requests(random.Random(1), DISTINCT, 2)
    with closing(load_engine(mini.NAME, device="cpu", dtype="float32")) as engine:
        expected = [
            engine.score([engine.format.encode(problem, steps) for steps in solutions])
            for problem, solutions in queries
        ]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    model = (f"--model={mini.NAME}", "--device=cpu", "--dtype=float32", "--max-request-seconds=30", "--log-level=error")
    command = ("-m", "server.scale", *model, "--replicas=2", "--replica-cpus=0.5")
    outcomes: Counter[str] = Counter()
    wrong = 0
    with servers.running("/readyz", *command) as (url, process), ThreadPoolExecutor(1) as pool:
        killer = pool.submit(_kill_replicas, url, process.pid)
        while not killer.done():
            answers: dict[int, Any] = {}
            clients.call(url, list(map(mixed.ours, queries)), CALLERS, _noting(answers), DOCUMENTED)
            outcomes.update(answer.get("code", "answered") for answer in answers.values())
            wrong += sum(
                models.apart([solution["step_scores"] for solution in answer["solutions"]], expected[number].scores)
                > CLOSE
                for number, answer in answers.items()
                if "code" not in answer
            )
        killer.result()  # raises the killer's exception, if any
    sent = outcomes.total()
    failed = ", ".join(f"{count} {code}" for code, count in outcomes.items() if code != "answered") or "none"
    what = f"{DEATHS} of two replicas killed, {sent:,} requests: scores"
    return [
        Comparison(
            f"{what} that came out right", outcomes["answered"] - wrong, "answered", outcomes["answered"], 1, "votes"
        ),
        Comparison(f"{what} that came at all (not: {failed})", outcomes["answered"], "sent", sent, 1, "votes"),
    ]


def _kill_replicas(url: str, cluster: int) -> None:
    rng = random.Random(0)
    names: set[str] = set()
    for _ in range(DEATHS):
        names = _wait_for_two(url, names)
        time.sleep(rng.random())
        children = psutil.Process(cluster).children(recursive=True)
        rng.choice([child for child in children if _is_replica(child)]).kill()


def _wait_for_two(url: str, before: set[str]) -> set[str]:
    """Waits until two replicas answer that are not the same two as before; returns their names."""
    until = time.monotonic() + servers.SECONDS
    while time.monotonic() < until:
        response = httpx.get(f"{url}/metrics", timeout=30)
        if response.status_code == 200:
            families = text_string_to_metric_families(response.text)
            names = {sample.labels["replica"] for family in families for sample in family.samples}
            if len(names) == 2 and names != before:
                return names
        time.sleep(0.2)
    raise RuntimeError(f"there were no two replicas after {servers.SECONDS} s")


def _is_replica(process: psutil.Process) -> bool:
    try:
        return "ServeReplica:unprm:replica" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _noting(replies: dict[int, Any]) -> clients.Note:
    def note(number: int, answer: bytes) -> None:
        replies[number] = json.loads(answer)

    return note


def _answers(rng: random.Random) -> list[str]:
    """Three expressions twice each, spelled at random, and a third time one of them: which class is largest depends on
    which answers are equal."""
    numbers = [rng.randint(2, 10**6) for _ in range(3)]
    spelled = [(f"\\sin({n}x)+x", f"x + \\sin( {n}x )", f"\\frac{{2x+2\\sin({n}x)}}{{2}}") for n in numbers]
    return [rng.choice(spellings) for spellings in spelled for _ in range(2)] + [rng.choice(spelled[rng.randrange(3)])]


def _request(answers: list[str]) -> clients.Request:
    solutions = [{"steps": ["a"], "answer": answer, "step_scores": [0.5]} for answer in answers]
    return clients.request("/vote/majority", {"solutions": solutions})


def _elected(equivalence: Equivalence, answers: list[str]) -> str:
    return answers[votes.decide("majority", equivalence.classes(answers)).solution_index]
