"""How the cost grows with the number of candidates and of steps, against padded batches, and with the number of
concurrent clients, against one."""

import random

from benchmarks import clients, models, queries, servers
from benchmarks.baselines import Plain, loaded, padded
from benchmarks.timing import Comparison, compare, timed
from unprm import mini
from unprm.types import Encoded, Engine

CANDIDATES, DEPTHS, CLIENTS = (1, 4, 16, 64), (1, 4, 8), (4, 16, 64)
WIDTH, REQUESTS, ROUNDS = 4, 128, 1


def run() -> list[Comparison]:
    """Measures the engine in fp32."""
    with loaded(prefix_cache_gb=1.0) as (engine, plain):
        rows = [_candidates(engine, plain, count) for count in CANDIDATES]
        rows += [_steps(engine, plain, depth) for depth in DEPTHS]
    return rows + _clients()


def _candidates(engine: Engine, plain: Plain, count: int) -> Comparison:
    votes = [models.vote(random.Random(seed), count) for seed in range(ROUNDS + 1)]
    return _against_padded(f"{count} candidates of a question", engine, plain, [[items] for items in votes])


def _steps(engine: Engine, plain: Plain, depth: int) -> Comparison:
    searches = [models.beam_search(random.Random(seed), WIDTH, depth) for seed in range(ROUNDS + 1)]
    return _against_padded(f"a beam search, {WIDTH} × {WIDTH} × {depth} steps", engine, plain, searches)


def _against_padded(what: str, engine: Engine, plain: Plain, rounds: list[list[list[Encoded]]]) -> Comparison:
    """Each of the `rounds` scores different items; the first one is a warm-up."""
    ours, theirs = iter(rounds), iter(rounds)
    for items in next(ours):
        engine.score(items)
    for items in next(theirs):
        padded(plain, items)
    everything = [item for items in rounds[0] for item in items]
    return compare(
        what,
        lambda: [engine.score(items) for items in next(ours)],
        "padded batches of 8",
        lambda: [padded(plain, items) for items in next(theirs)],
        ROUNDS,
        plain.work(everything) / plain.least(everything),
    )


def _clients() -> list[Comparison]:
    rates = {}
    with servers.unprm("--prefix-cache-gb=0") as (url, _):
        for seed, count in enumerate((64, 1, *CLIENTS)):
            bodies = list(map(queries.score_steps, queries.zipf(random.Random(seed), REQUESTS)))
            rates[count] = REQUESTS / timed(clients.call, url, bodies, count)
    what = f"requests of {queries.CANDIDATES} candidates by {mini.NAME} over HTTP"
    return [
        Comparison(f"{count} clients: {what}", rates[count], "one client", rates[1], unit="/s") for count in CLIENTS
    ]
