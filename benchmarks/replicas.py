"""Two replicas on two cores against one on one core, behind nginx and under Ray Serve: request rates, equality of
scores, and the share of cached tokens, which should be nearly that of one replica that gets all questions. Also against
`benchmarks.simulation` on the same requests, whose only measured input is the rate of the single replica."""

import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks import clients, mixed, models, servers
from benchmarks.simulation import Outcome, Replicas, Request, Tree, by_affinity, simulate
from benchmarks.timing import Comparison
from unprm.affinity import HEADER, question_hash
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.models.checkpoint import load_tokenizer

REQUESTS, ROUNDS, WARM, CLIENTS, CANDIDATES, QUESTIONS = 160, 2, 8, 16, 8, 100
"""So many questions that none dominates a replica's work. Each round sends one and two replicas the same requests."""
DEALS = 100
"""Simulated assignments of questions to two replicas, whose names differ at every start."""
OPTIONS = ("--device=cpu", "--dtype=float32", "--prefix-cache-gb=1", "--log-level=error")


def run() -> list[Comparison]:
    """Measures a model of 0.1 billion parameters, one thread per replica, with some hot questions, and with equally
    frequent ones."""
    os.environ["OMP_NUM_THREADS"] = "1"
    count = WARM + REQUESTS
    loads = {
        "hot questions": mixed.requests(random.Random(0), count, CANDIDATES, QUESTIONS),
        "questions alike": mixed.alike(random.Random(1), count, CANDIDATES, QUESTIONS),
    }
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory, "model"))
        form = UnprmFormat(load_tokenizer(place), PrmConfig.read(place))
        for name, two, bound in (
            ("behind nginx", _nginx(place, Path(directory)), False),
            ("under Ray Serve", _ray(place), True),
        ):
            with servers.unprm(f"--model={place}", *OPTIONS, core=0) as alone, two as url:
                for kind, load in loads.items():
                    one, more = _by_turns((alone, url), load)
                    rows += _rows(f"{name}, {kind}", one, more, expect(requests(form, load), one.rate, bound))
    return rows


def _rows(what: str, one: "_Seen", two: "_Seen", expected: "Expected") -> list[Comparison]:
    apart = models.apart(two.scores, one.scores)
    return [
        Comparison(
            f"two replicas {what}, scores within {apart:.0e}", two.rate, "one", one.rate, ROUNDS, "/s", allowed=2.0
        ),
        Comparison(f"two replicas {what}", two.rate, expected.description, expected.rate, 1, "/s"),
        Comparison(f"tokens known, two replicas {what}", two.known, "one", one.known, 1, "share"),
        Comparison(f"tokens known, two replicas {what}", two.known, "simulated", expected.known, 1, "share"),
        Comparison(f"tokens known, one replica, {what}", one.known, "simulated", expected.one, 1, "share"),
    ]


@dataclass(frozen=True, slots=True)
class Expected:
    """The simulation's results. `one`, `known`: share of cached tokens with one replica and with two; `rate`: requests
    per second of two. Those of two are medians over assignments of questions; `description`: their rates' 5th and 95th
    percentiles, as text."""

    one: float
    known: float
    rate: float
    description: str


def requests(form: UnprmFormat, load: Sequence[mixed.Query]) -> list[Request]:
    """The load as requests for the simulation."""
    tree = Tree()
    return [
        tree.request(question_hash(problem), (form.encode(problem, steps).needed for steps in solutions))
        for problem, solutions in load
    ]


def expect(load: Sequence[Request], rate: float, bound: bool) -> Expected:
    """Simulates two replicas on these requests, the first `WARM` of them as a warm-up, if one replica answers `rate`
    per second; `bound`: as with Ray's router, which passes over a replica with more than its share of requests."""
    one = _play(load, Replicas(1, 1.0))
    second = _rate(one) / rate
    two = [_play(load, Replicas(2, second), f"deal-{number}", bound) for number in range(DEALS)]
    rates = sorted(map(_rate, two))
    description = f"simulated, {rates[5]:.1f} to {rates[-6]:.1f} by whose each question is"
    known = statistics.median(outcome.known for outcome in two)
    return Expected(one.known, known, statistics.median(rates), description)


def _play(load: Sequence[Request], replicas: Replicas, names: str = "replica", bound: bool = False) -> Outcome:
    """As in `_by_turns`, the first requests are a warm-up and only the rest counts."""
    warm, rest = iter(load[:WARM]), iter(load[WARM:])
    later = 2 * replicas.seconds_per_token * sum(request.distinct for request in load)
    callers = [*[(0.0, warm)] * CLIENTS, *[(later, rest)] * CLIENTS]
    outcome = simulate(callers, replicas, by_affinity(replicas.count, names, bound))
    return outcome.between(later, outcome.seconds)


def _rate(outcome: Outcome) -> float:
    """Requests per second, as in `_Seen.rate`."""
    ends: list[float] = sorted(outcome.sent + outcome.latency - outcome.sent[0])
    counted = len(ends) - CLIENTS
    return counted / float(ends[counted - 1])


@dataclass(slots=True)
class _Seen:
    """The answers in order; the number of those that came while requests were left to send, and their seconds."""

    answers: list[Any] = field(default_factory=list)
    counted: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second while all clients are busy; afterwards a replica that has finished would idle."""
        return self.counted / self.seconds

    @property
    def scores(self) -> list[tuple[float, ...]]:
        """Step scores of every solution."""
        return [tuple(solution["step_scores"]) for answer in self.answers for solution in answer["solutions"]]

    @property
    def known(self) -> float:
        """Share of the tokens that came from the prefix cache."""
        tokens, cached = (sum(answer["usage"][name] for answer in self.answers) for name in ("tokens", "cached_tokens"))
        return float(cached / tokens)


def _by_turns(urls: Sequence[str], load: Sequence[mixed.Query]) -> list[_Seen]:
    """Sends the whole load to each server, in alternating parts, so that other load on the machine affects all."""
    sent = [(*mixed.ours(query), {HEADER: question_hash(query[0])}) for query in load]
    seen = [_Seen() for _ in urls]
    part = REQUESTS // ROUNDS
    with _beside_the_first():
        for url in urls:
            clients.call(url, sent[:WARM], CLIENTS)
        for start in range(WARM, WARM + REQUESTS, part):
            for url, record in zip(urls, seen, strict=True):
                answers, ends = _answers(url, sent[start : start + part])
                record.answers += answers
                record.counted += part - CLIENTS
                record.seconds += ends[part - CLIENTS - 1]  # when the last request is sent
    return seen


def _answers(url: str, sent: Sequence[clients.Request]) -> tuple[list[Any], list[float]]:
    """The answers in the order of the requests, and the seconds until each answer, in ascending order."""
    answers: dict[int, bytes] = {}
    ends: list[float] = []
    begun = time.perf_counter()

    def note(number: int, answer: bytes) -> None:
        ends.append(time.perf_counter() - begun)
        answers[number] = answer

    clients.call(url, sent, CLIENTS, note)
    return [json.loads(answers[number]) for number in range(len(sent))], sorted(ends)


@contextmanager
def _beside_the_first() -> Iterator[None]:
    """Pins the clients to the first replica's core, whether there is a second replica or not; threads inherit this."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


@contextmanager
def _nginx(place: Path, directory: Path) -> Iterator[str]:
    """Two servers, each on its own core, behind nginx."""
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
            assert process.poll() is None, "the second replica did not start"  # readiness only needs the first
            time.sleep(0.5)
        yield url
