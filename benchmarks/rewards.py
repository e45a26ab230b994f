"""Rewards for a trainer: the example's reward server, asked as slime asks it, against the server it asks itself."""

import os
import random
import statistics
from pathlib import Path

from benchmarks import clients, queries, servers
from benchmarks.clients import Request
from benchmarks.queries import Query, score_steps
from benchmarks.timing import Comparison, timed

SHIM = Path(__file__).parents[1] / "clients" / "examples" / "reward_server.py"
IN_FLIGHT, REQUESTS, ROUNDS = 256, 512, 3


def run() -> list[Comparison]:
    """A solution per request, scored by unprm-mini; every round has different ones, which both get by turns."""
    with servers.unprm("--dtype=float32", "--prefix-cache-gb=0") as (url, _):
        os.environ["UNPRM_CLIENT_URL"] = url
        with servers.python("/openapi.json", str(SHIM)) as (shim, _):
            taken = []
            for seed in range(ROUNDS + 1):
                batch = queries.zipf(random.Random(seed), REQUESTS, candidates=1)
                bodies = (shim, list(map(_as_slime, batch))), (url, list(map(score_steps, batch)))
                taken.append([timed(clients.call, address, requests, IN_FLIGHT) for address, requests in bodies])
    rates = [REQUESTS / statistics.median(seconds[1:]) for seconds in zip(*taken, strict=True)]  # the first warms up
    what = f"{IN_FLIGHT} requests of a solution in flight, by way of reward_server.py"
    return [Comparison(what, rates[0], "the server alone", rates[1], ROUNDS, "/s")]


def _as_slime(query: Query) -> Request:
    problem, (steps,) = query
    messages = [{"role": "user", "content": problem}]
    return clients.request("/slime", {"prompt": messages, "response": "\n".join(steps), "label": ""})
