"""Overhead of HTTP: requests of many clients, and of one, against the engine alone on the same solutions."""

import random
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks import clients, models, queries, servers
from benchmarks.queries import Query, score_steps
from benchmarks.timing import Comparison, timed
from unprm import mini
from unprm.models.load import load_engine
from unprm.types import Encoded, Engine

CLIENTS, SINGLE, ROUNDS = 64, 50, 3


def comparisons() -> list[Comparison]:
    """Measures in fp32. Every round has different requests; the engine alone gets all of a round's at once."""
    with tempfile.TemporaryDirectory() as directory:
        place = str(models.write(Path(directory)))
        return [_many(place, "0.1 billion parameters", 64), _many(mini.NAME, mini.NAME, 512), _one()]


def _many(model: str, name: str, requests: int) -> Comparison:
    rounds = [queries.zipf(random.Random(seed), requests) for seed in range(ROUNDS + 1)]
    with (
        closing(load_engine(model, device="cpu", dtype="float32", prefix_cache_gb=1.0)) as engine,
        servers.unprm("--dtype=float32", "--prefix-cache-gb=1", model=model) as (url, _),
    ):  # alternating, so that other load on the machine affects both
        taken = [
            (
                timed(clients.call, url, list(map(score_steps, batch)), CLIENTS),
                timed(engine.score, _encoded(engine, batch)),
            )
            for batch in rounds
        ]
    rates = [requests / statistics.median(seconds[1:]) for seconds in zip(*taken, strict=True)]  # the first warms up
    what = f"{name}, {CLIENTS} clients: requests of {queries.CANDIDATES} candidates over HTTP"
    return Comparison(what, rates[0], "the engine alone", rates[1], ROUNDS, "/s", allowed=1.0)


def _one() -> Comparison:
    """One client, which waits for each answer before it sends the next request."""
    single = [(problem, solutions[:1]) for problem, solutions in queries.zipf(random.Random(9), SINGLE)]
    with (
        closing(load_engine(mini.NAME, device="cpu", dtype="float32")) as engine,
        servers.unprm("--dtype=float32", "--prefix-cache-gb=0") as (url, _),
    ):
        pairs = list(zip(_encoded(engine, single), map(score_steps, single), strict=True))
        engine.score([item for item, _ in pairs])
        clients.call(url, [body for _, body in pairs], 1)
        taken = [(clients.call(url, [body], 1)[0], timed(engine.score, [item])) for item, body in pairs]
    over, alone = map(statistics.median, zip(*taken, strict=True))
    what = f"a single solution by {mini.NAME}: {1000 * (over - alone):.1f} ms more over HTTP"
    return Comparison(what, over, "the engine alone", alone, SINGLE, allowed=1.0)


def _encoded(engine: Engine, batch: list[Query]) -> list[Encoded]:
    return [engine.format.encode(problem, steps) for problem, solutions in batch for steps in solutions]
