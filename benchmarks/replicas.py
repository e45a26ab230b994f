"""Two replicas on two cores against one on one core: behind nginx, and under Ray Serve. The same answers, and nearly as
much known from before as by one that sees every question."""

import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import clients, mixed, models, servers
from benchmarks.timing import Comparison, timed
from unprm.affinity import HEADER, question_hash

REQUESTS, WARM, CLIENTS = 96, 8, 16
OPTIONS = ("--device=cpu", "--dtype=float32", "--prefix-cache-gb=1", "--log-level=error")


def run() -> list[Comparison]:
    """With 0.1 billion parameters, one thread a replica; callers have what time the replicas leave them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    rng = random.Random(0)
    asked = mixed.requests(rng, WARM + REQUESTS)
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory, "model"))
        with servers.unprm(f"--model={place}", *OPTIONS, core=0) as url:
            one = _measure(url, asked)
        with _nginx(place, Path(directory)) as url:
            behind = _measure(url, asked)
        with _ray(place) as url:
            under = _measure(url, asked)
    rows = []
    for name, two in (("behind nginx", behind), ("under Ray Serve", under)):
        apart = models.apart(two.scores, one.scores)
        rows += [
            Comparison(
                f"two replicas {name}, scores within {apart:.0e}", two.rate, "one", one.rate, 1, "/s", allowed=2.0
            ),
            Comparison(f"tokens known from before, two replicas {name}", two.known, "one", one.known, 1, "share"),
        ]
    return rows


class _Seen:
    """What came back: requests a second, step scores, and the share of tokens that were known."""

    def __init__(self, rate: float, answers: list[Any]) -> None:
        self.rate = rate
        self.scores = [tuple(own["step_scores"]) for told in answers for own in told["solutions"]]
        tokens, cached = (sum(told["usage"][name] for told in answers) for name in ("tokens", "cached_tokens"))
        self.known = cached / tokens


def _measure(url: str, asked: list[mixed.Asked]) -> _Seen:
    requests = [(*mixed.ours(own), {HEADER: question_hash(own[0])}) for own in asked]
    answers: dict[int, Any] = {}

    def note(number: int, answer: bytes) -> None:
        answers[number] = json.loads(answer)

    clients.call(url, requests[:WARM], CLIENTS)
    seconds = timed(clients.call, url, requests[WARM:], CLIENTS, note)
    return _Seen(REQUESTS / seconds, [answers[number] for number in range(REQUESTS)])


@contextmanager
def _nginx(place: Path, directory: Path) -> Iterator[str]:
    """Two servers, each on a core of its own, and nginx before them."""
    model = f"--model={place}"
    with (
        servers.unprm(model, *OPTIONS, core=0) as one,
        servers.unprm(model, *OPTIONS, core=1) as other,
        servers.nginx(directory, one, other) as url,
    ):
        yield url


@contextmanager
def _ray(place: Path) -> Iterator[str]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    command = ["-m", "server.scale", f"--model={place}", *OPTIONS, "--replicas=2"]
    with servers.running("/readyz", *command) as (url, _):
        yield url
