"""Two replicas on two cores against one on one core: behind nginx, and under Ray Serve. The same answers, and nearly as
much known from before as by one that sees every question. And against what `benchmarks.simulation` makes of the same
requests, which takes nothing from these measurements but how long the one replica took."""

import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks import clients, mixed, models, servers
from benchmarks.simulation import Outcome, Replicas, Request, Tree, by_affinity, simulate
from benchmarks.timing import Comparison, timed
from unprm.affinity import HEADER, question_hash
from unprm.engines.checkpoint import load_tokenizer
from unprm.formats.unprm import PrmConfig, UnprmFormat

REQUESTS, WARM, CLIENTS, QUESTIONS = 240, 8, 16, 100
"""So many questions that none is most of a replica's work."""
DEALS = 100
"""Ways that questions fall to two replicas, which have other names each time that they are started."""
OPTIONS = ("--device=cpu", "--dtype=float32", "--prefix-cache-gb=1", "--log-level=error")


def run() -> list[Comparison]:
    """With 0.1 billion parameters, one thread a replica."""
    os.environ["OMP_NUM_THREADS"] = "1"
    rng = random.Random(0)
    asked = mixed.requests(rng, WARM + REQUESTS, questions=QUESTIONS)
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory, "model"))
        form = UnprmFormat(load_tokenizer(place), PrmConfig.read(place))
        with servers.unprm(f"--model={place}", *OPTIONS, core=0) as url:
            one = _measure(url, asked)
        with _nginx(place, Path(directory)) as url:
            behind = _measure(url, asked)
        with _ray(place) as url:
            under = _measure(url, asked)
    expected = expect(requests(form, asked), one.rate)
    rows = [Comparison("tokens known from before, one replica", one.known, "simulated", expected.one, 1, "share")]
    for name, two in (("behind nginx", behind), ("under Ray Serve", under)):
        apart = models.apart(two.scores, one.scores)
        rows += [
            Comparison(
                f"two replicas {name}, scores within {apart:.0e}", two.rate, "one", one.rate, 1, "/s", allowed=2.0
            ),
            Comparison(f"tokens known from before, two replicas {name}", two.known, "one", one.known, 1, "share"),
            Comparison(f"two replicas {name}", two.rate, expected.told, expected.rate, 1, "/s"),
            Comparison(
                f"tokens known from before, two replicas {name}", two.known, "simulated", expected.known, 1, "share"
            ),
        ]
    return rows


@dataclass(frozen=True, slots=True)
class Expected:
    """What the simulation says: tokens known to one replica and to two, requests a second of two (medians over how
    questions fall to them, and `told`, with the 5th and the 95th of 100)."""

    one: float
    known: float
    rate: float
    told: str


def requests(form: UnprmFormat, asked: Sequence[mixed.Asked]) -> list[Request]:
    """For the simulation."""
    tree = Tree()
    return [
        tree.request(question_hash(problem), (form.encode(problem, steps).needed for steps in solutions))
        for problem, solutions in asked
    ]


def expect(asked: Sequence[Request], rate: float) -> Expected:
    """What two replicas do with these requests, `WARM` to begin with, if one answers `rate` a second."""
    one = _play(asked, Replicas(1, 1.0))
    second = REQUESTS / rate / float(one.computed.sum())
    two = [_play(asked, Replicas(2, second), f"deal-{number}") for number in range(DEALS)]
    rates = sorted(outcome.rate() for outcome in two)
    told = f"simulated, {rates[5]:.1f} to {rates[-6]:.1f} by whose each question is"
    known = statistics.median(outcome.known for outcome in two)
    return Expected(one.known, known, statistics.median(rates), told)


def _play(asked: Sequence[Request], replicas: Replicas, names: str = "replica") -> Outcome:
    """As `_measure`: the first requests warm the replicas, the rest counts."""
    warm, rest = iter(asked[:WARM]), iter(asked[WARM:])
    later = 2 * replicas.seconds_per_token * sum(request.distinct for request in asked)
    callers = [*[(0.0, warm)] * CLIENTS, *[(later, rest)] * CLIENTS]
    outcome = simulate(callers, replicas, by_affinity(replicas.count, names))
    return outcome.between(later, outcome.seconds)


class _Seen:
    """What came back: requests a second, step scores, and the share of tokens that were known."""

    def __init__(self, rate: float, answers: list[Any]) -> None:
        self.rate = rate
        self.scores = [tuple(own["step_scores"]) for told in answers for own in told["solutions"]]
        tokens, cached = (sum(told["usage"][name] for told in answers) for name in ("tokens", "cached_tokens"))
        self.known = cached / tokens


def _measure(url: str, asked: list[mixed.Asked]) -> _Seen:
    sent = [(*mixed.ours(own), {HEADER: question_hash(own[0])}) for own in asked]
    answers: dict[int, Any] = {}

    def note(number: int, answer: bytes) -> None:
        answers[number] = json.loads(answer)

    with _beside_the_first():
        clients.call(url, sent[:WARM], CLIENTS)
        seconds = timed(clients.call, url, sent[WARM:], CLIENTS, note)
    return _Seen(REQUESTS / seconds, [answers[number] for number in range(REQUESTS)])


@contextmanager
def _beside_the_first() -> Iterator[None]:
    """Callers share the first replica's core, whether there is a second or not; threads inherit this."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


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
    with servers.running("/readyz", *command) as (url, process):
        while len(set(re.findall(r'\breplica="(\w+)"', httpx.get(f"{url}/metrics").text))) < 2:
            assert process.poll() is None, "the second replica did not start"  # the first is ready before it
            time.sleep(0.5)
        yield url
