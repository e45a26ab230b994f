"""Scores of two replicas under Ray Serve while replicas are killed: every one must be the same as without a server."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil

from benchmarks import clients, models, queries, servers
from benchmarks.timing import Comparison
from unprm import mini
from unprm.models.load import load_engine

DEATHS, DISTINCT, CALLERS, CLOSE = 20, 80, 4, 1e-4
"""Numbers of replicas killed, distinct requests and clients; tolerance for scores, which depend on the batch."""
DOCUMENTED = {200, 429, 503, 504}
"""Statuses that a client may get while replicas die."""


def run() -> list[Comparison]:
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
