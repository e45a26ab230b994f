"""Running servers: requests a second as the number of clients doubles, against a single client's.

Each request scores 8 solutions of a new problem. UNPRM_CLIENT_KEY is the servers' API key, if they ask for one.
"""

import random
import time
from collections.abc import Iterator, Sequence

from benchmarks import clients, queries
from benchmarks.timing import Comparison

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
REQUESTS, SOLUTIONS = 16, 8
"""Requests of each client, and solutions of a request."""


def comparisons(urls: Sequence[str]) -> Iterator[Comparison]:
    """Measures one server after the other."""
    for url in urls:
        alone = None
        for number in CLIENTS:
            seeds = (random.getrandbits(64) for _ in range(number * REQUESTS))  # no cache knows the problems
            sent = [queries.score_steps(queries.single(seed, SOLUTIONS)) for seed in seeds]
            began = time.perf_counter()
            taken = sorted(clients.call(url, sent, number))
            rate = len(sent) / (time.perf_counter() - began)
            half, most = (1000 * taken[int(part * len(taken))] for part in (0.5, 0.95))
            alone = alone or rate
            what = f"{url}, {number} clients: p50 {half:.1f} ms, p95 {most:.1f} ms"
            yield Comparison(what, rate, "a single client", alone, unit="/s", allowed=float(number))
