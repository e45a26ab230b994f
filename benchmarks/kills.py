"""Votes while the worker processes that compare answers are killed, and scores of two replicas under Ray Serve while
replicas are killed: every answer must be the same as without a server."""

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import psutil

from benchmarks import clients, models, queries, servers
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
    ballots: list[list[str]] = []
    elected: list[str] = []
    with servers.unprm("--max-request-seconds=30") as (url, process), ThreadPoolExecutor(1) as pool:
        killer = pool.submit(_kill_comparers, process.pid)
        while not killer.done():
            ballots += [_answers(rng) for _ in range(REQUESTS)]
            replies = clients.call(url, list(map(_request, ballots[-REQUESTS:])), CLIENTS)
            elected += [reply.json()["answer"] for reply in replies]
        killer.result()  # raises the killer's exception, if any
    with Equivalence(deadline=60.0) as equivalence:
        wrong = sum(_elected(equivalence, ballot) != answer for ballot, answer in zip(ballots, elected, strict=True))
    what = f"votes that came out right of {len(elected):,}, {KILLS} processes killed"
    return Comparison(what, len(elected) - wrong, "all", len(elected), unit="votes")


def _kill_comparers(server: int) -> None:
    rng, killed = random.Random(1), 0
    while killed < KILLS:
        time.sleep(EVERY)
        with suppress(psutil.NoSuchProcess, IndexError):
            rng.choice(psutil.Process(server).children(recursive=True)).send_signal(signal.SIGKILL)
            killed += 1


def _replicas() -> list[Comparison]:
    """Kills a replica whenever both answer. Answers with status 200 are compared with the engine alone."""
    repeated = queries.zipf(random.Random(1), DISTINCT, 2)
    with closing(load_engine(mini.NAME, device="cpu", dtype="float32")) as engine:
        expected = [
            engine.score([engine.format.encode(problem, steps) for steps in solutions])
            for problem, solutions in repeated
        ]
    options = ("--dtype=float32", "--max-request-seconds=30", "--replica-cpus=0.5")
    outcomes: Counter[str] = Counter()
    wrong = 0
    with servers.ray(*options) as (url, process), ThreadPoolExecutor(1) as pool:
        killer = pool.submit(_kill_replicas, url, process.pid)
        while not killer.done():
            replies = clients.call(url, list(map(queries.score_steps, repeated)), CALLERS, DOCUMENTED)
            answers = [reply.json() for reply in replies]
            outcomes.update(answer.get("code", "answered") for answer in answers)
            wrong += sum(
                models.apart([solution["step_scores"] for solution in answer["solutions"]], right.scores) > CLOSE
                for answer, right in zip(answers, expected, strict=True)
                if "code" not in answer
            )
        killer.result()  # raises the killer's exception, if any
    sent, answered = outcomes.total(), outcomes["answered"]
    failed = ", ".join(f"{count} {code}" for code, count in outcomes.items() if code != "answered") or "none"
    what = f"{DEATHS} of two replicas killed, {sent:,} requests: scores"
    return [
        Comparison(f"{what} that came out right", answered - wrong, "answered", answered, unit="votes"),
        Comparison(f"{what} that came at all (not: {failed})", answered, "sent", sent, unit="votes"),
    ]


def _kill_replicas(url: str, cluster: int) -> None:
    rng = random.Random(0)
    names: Sequence[str] = ()
    for _ in range(DEATHS):
        names = servers.two_replicas(url, names)
        time.sleep(rng.random())
        children = psutil.Process(cluster).children(recursive=True)
        rng.choice([child for child in children if _is_replica(child)]).kill()


def _is_replica(process: psutil.Process) -> bool:
    try:
        return "ServeReplica:unprm:replica" in " ".join(process.cmdline())
    except psutil.Error:
        return False


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
