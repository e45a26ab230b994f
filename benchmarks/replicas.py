"""Two replicas on two cores against one on one core, behind nginx and under Ray Serve: request rates, equality of
scores, and the share of cached tokens, which should be nearly that of one replica that gets all questions. Also against
`benchmarks.simulation` on the same requests, whose only measured input is the rate of the single replica."""

import os
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import clients, models, queries, servers
from benchmarks.queries import Query
from benchmarks.simulation import Outcome, Replicas, Request, Tree, by_affinity, simulate
from benchmarks.timing import Comparison
from unprm.affinity import HEADER, question_hash
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.models.checkpoint import load_tokenizer

REQUESTS, ROUNDS, WARM, CLIENTS, CANDIDATES, QUESTIONS = 160, 2, 8, 16, 8, 100
"""So many questions that none dominates a replica's work. Each round sends one and two replicas the same requests."""
DEALS = 100
"""Simulated assignments of questions to two replicas, whose names differ at every start."""
OPTIONS = ("--dtype=float32", "--prefix-cache-gb=1")


def run() -> list[Comparison]:
    """Measures a model of 0.1 billion parameters, one thread per replica, with some hot questions, and with equally
    frequent ones."""
    os.environ["OMP_NUM_THREADS"] = "1"
    count = WARM + REQUESTS
    loads = {
        "hot questions": queries.zipf(random.Random(0), count, CANDIDATES, QUESTIONS),
        "questions alike": queries.in_turn(random.Random(1), count, CANDIDATES, QUESTIONS),
    }
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory, "model"))
        form = UnprmFormat(load_tokenizer(place), PrmConfig.read(place))
        for name, two, bound in (
            ("behind nginx", _nginx(place, Path(directory)), False),
            ("under Ray Serve", servers.ray(*OPTIONS, model=place), True),
        ):
            with servers.unprm(*OPTIONS, model=place, core=0) as (alone, _), two as (url, _):
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
        Comparison(f"two replicas {what}", two.rate, expected.description, expected.rate, unit="/s"),
        Comparison(f"tokens known, two replicas {what}", two.known, "one", one.known, unit="share"),
        Comparison(f"tokens known, two replicas {what}", two.known, "simulated", expected.known, unit="share"),
        Comparison(f"tokens known, one replica, {what}", one.known, "simulated", expected.one, unit="share"),
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


def requests(form: UnprmFormat, load: Sequence[Query]) -> list[Request]:
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


def _by_turns(urls: Sequence[str], load: Sequence[Query]) -> list[_Seen]:
    """Sends the whole load to each server, in alternating parts, so that other load on the machine affects all."""
    sent = [(*queries.score_steps(query), {HEADER: question_hash(query[0])}) for query in load]
    seen = [_Seen() for _ in urls]
    part = REQUESTS // ROUNDS
    with _beside_the_first():
        for url in urls:
            clients.call(url, sent[:WARM], CLIENTS)
        for start in range(WARM, WARM + REQUESTS, part):
            for url, record in zip(urls, seen, strict=True):
                replies = clients.call(url, sent[start : start + part], CLIENTS)
                record.answers += [reply.json() for reply in replies]
                record.counted += part - CLIENTS
                ends = sorted(reply.received for reply in replies)
                record.seconds += ends[part - CLIENTS - 1] - replies[0].sent  # when the last request is sent
    return seen


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
def _nginx(place: Path, directory: Path) -> Iterator[tuple[str, servers.Process]]:
    """Two servers, each on its own core, behind nginx."""
    with (
        servers.unprm(*OPTIONS, model=place, core=0) as (one, _),
        servers.unprm(*OPTIONS, model=place, core=1) as (other, process),
        servers.nginx(directory, one, other) as url,
    ):
        yield url, process
