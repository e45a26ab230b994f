"""Simulation of replicas with prefix caches: where each request goes, which of its tokens are cached there, and how
long it takes. No clock and no network; the same seed gives the same outcome.

A replica serves its requests one after the other, in the order of arrival, and computes the tokens that are not cached,
each in the same time. Batching in a real replica changes which requests wait, not how much is computed.
"""

import heapq
import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from unprm.affinity import bounded, ranked

Node = tuple[int, int]
"""A sequence of tokens in the tree of all requests: its name, and its number of tokens."""


@dataclass(frozen=True, slots=True)
class Request:
    """`nodes`: the nodes that it needs, each once, and after its parent. `tokens`: number of tokens without sharing."""

    question: str
    nodes: tuple[Node, ...]
    tokens: int

    @property
    def distinct(self) -> int:
        """Number of distinct tokens, which are computed if nothing is cached."""
        return sum(tokens for _, tokens in self.nodes)


Caller = Iterator[Request]
"""A client: it sends a request, and the next one when that is answered. Several may share an iterator, like a queue."""
Router = Callable[[str, Sequence[int]], Iterable[int]]
"""From a question and each replica's number of unanswered requests to the replicas in order of preference."""


class Tree:
    """Makes requests from real token sequences: each token with a distinct prefix is a node of its own."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], int] = {}  # by the parent's name (0: none) and the token

    def request(self, question: str, sequences: Iterable[Sequence[int]]) -> Request:
        """A request that scores these sequences of token ids."""
        tokens, seen = 0, dict[int, None]()
        for ids in sequences:
            tokens, name = tokens + len(ids), 0
            for token in ids:
                name = self._names.setdefault((name, token), len(self._names) + 1)
                seen[name] = None
        return Request(question, tuple((name, 1) for name in seen), tokens)


class Cache:
    """A replica's prefix cache: the most recently used nodes, at most `budget` tokens. As in
    `unprm.engines.torch.tree`, a node is never evicted before its children."""

    def __init__(self, budget: float) -> None:
        self.budget, self.held = budget, 0
        self._nodes: OrderedDict[int, int] = OrderedDict()  # most recently used at the end, a parent after its children

    def read(self, nodes: Sequence[Node]) -> int:
        """Adds these nodes to the cache, as far as they fit; returns the number of their tokens not cached before."""
        held, computed = self._nodes, 0
        for name, tokens in reversed(nodes):
            if name in held:
                held.move_to_end(name)
            else:
                held[name] = tokens
                computed += tokens
        self.held += computed
        while self.held > self.budget:
            self.held -= held.popitem(last=False)[1]
        return computed


@dataclass(frozen=True, slots=True)
class Replicas:
    """`count` replicas. `seconds_per_token`, `seconds_per_request`: cost of a computed token and of a request;
    `cache_tokens`: cache size of each; `overflow_seconds`: queued work beyond which a replica is passed over;
    `queue_seconds`: queued work of the chosen replica beyond which a request is refused."""

    count: int
    seconds_per_token: float
    seconds_per_request: float = 0.0
    cache_tokens: float = math.inf
    overflow_seconds: float = math.inf
    queue_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Outcome:
    """Arrays with one entry per request, in the order of sending: time `sent`; `latency` in seconds (NaN: refused, as
    every replica had too much work); `replica` (-1: refused); its `tokens`, the `distinct` and the `computed` ones; and
    `busy`, the seconds of work. `seconds`: duration of the whole simulation."""

    sent: npt.NDArray[np.float64]
    latency: npt.NDArray[np.float64]
    replica: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]
    computed: npt.NDArray[np.int64]
    busy: npt.NDArray[np.float64]
    seconds: float

    def between(self, start: float, end: float) -> "Outcome":
        """The requests sent in this time span, to leave out the time until caches are full and queues are steady."""
        within = (start <= self.sent) & (self.sent < end)
        return Outcome(
            self.sent[within],
            self.latency[within],
            self.replica[within],
            self.tokens[within],
            self.distinct[within],
            self.computed[within],
            self.busy[within],
            end - start,
        )

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which requests were answered."""
        return self.replica >= 0

    @property
    def hit_rate(self) -> float:
        """Share of the distinct tokens that were in the cache."""
        return 1 - float(self.computed[self.answered].sum() / self.distinct[self.answered].sum())

    @property
    def known(self) -> float:
        """Share of all tokens that were not computed: `cached_tokens` of `tokens` in a server's `usage`."""
        return 1 - float(self.computed[self.answered].sum() / self.tokens[self.answered].sum())

    def served(self, deadline: float = math.inf) -> float:
        """Share of the requests that were answered within `deadline` seconds."""
        return float((self.latency <= deadline).mean())  # a comparison with NaN is false

    def rate(self, deadline: float = math.inf) -> float:
        """Requests per second that were answered within `deadline` seconds."""
        return len(self.sent) * self.served(deadline) / self.seconds

    def quantile(self, share: float) -> float:
        """This quantile of the answers' latency in seconds."""
        return float(np.nanquantile(self.latency, share))

    def load(self, replicas: int) -> float:
        """The replicas' working time as a share of the available time; above 1 they are overloaded."""
        return float(self.busy.sum()) / (replicas * self.seconds)


def simulate(callers: Iterable[tuple[float, Caller]], replicas: Replicas, route: Router, pause: float = 0.0) -> Outcome:
    """Simulates the callers' requests. Each caller starts at its time, and continues `pause` seconds after each answer;
    a caller whose request is refused gives up."""
    order = itertools.count()
    due = [(start, next(order), caller) for start, caller in callers]
    heapq.heapify(due)
    caches = [Cache(replicas.cache_tokens) for _ in range(replicas.count)]
    free = [0.0] * replicas.count
    running, ends = [0] * replicas.count, list[tuple[float, int]]()
    rows: list[tuple[float, float, int, int, int, int, float]] = []
    while due:
        now, _, caller = heapq.heappop(due)
        request = next(caller, None)
        if request is None:
            continue
        while ends and ends[0][0] <= now:
            running[heapq.heappop(ends)[1]] -= 1
        ranks = route(request.question, running)
        chosen = next((replica for replica in ranks if free[replica] - now <= replicas.overflow_seconds), None)
        if chosen is None:
            chosen = free.index(min(free))  # the one that is free first
        if free[chosen] - now > replicas.queue_seconds:
            rows.append((now, math.nan, -1, request.tokens, request.distinct, 0, 0.0))
            continue
        # requests are served in order, so the cache holds what all earlier ones left
        computed = caches[chosen].read(request.nodes)
        busy = computed * replicas.seconds_per_token + replicas.seconds_per_request
        free[chosen] = end = max(now, free[chosen]) + busy
        running[chosen] += 1
        heapq.heappush(ends, (end, chosen))
        rows.append((now, end - now, chosen, request.tokens, request.distinct, computed, busy))
        heapq.heappush(due, (end + pause, next(order), caller))
    sent, latency, busy_ = (np.array([row[k] for row in rows]) for k in (0, 1, 6))
    chose, tokens, distinct, computed_ = (np.array([row[k] for row in rows], np.int64) for k in (2, 3, 4, 5))
    return Outcome(sent, latency, chose, tokens, distinct, computed_, busy_, float(np.nanmax(sent + latency) - sent[0]))


def by_affinity(count: int, names: str = "replica", bound: bool = False) -> Router:
    """Routes each question by `unprm.affinity.ranked`; `bound`: with the order changed by `unprm.affinity.bounded`."""
    index = {f"{names}-{number}": number for number in range(count)}

    @cache  # ranking needs a hash per replica, and questions recur
    def ranks(question: str) -> list[int]:
        return [index[name] for name in ranked(question, index)]

    def order(question: str, running: Sequence[int]) -> list[int]:
        return bounded(ranks(question), dict(enumerate(running))) if bound else ranks(question)

    return order


def by_chance(rng: random.Random, count: int) -> Router:
    """Routes to a random replica; if it has too much work, to the next ones by number."""

    def order(question: str, running: Sequence[int]) -> Iterator[int]:
        first = rng.randrange(count)
        return ((first + step) % count for step in range(count))

    return order


def poisson(rng: random.Random, rate: float, until: float) -> Iterator[float]:
    """Times of independent arrivals, `rate` per second."""
    now = rng.expovariate(rate)
    while now < until:
        yield now
        now += rng.expovariate(rate)


def bursts(rng: random.Random, rate: float, until: float, factor: float = 4.0, length: float = 2.0) -> Iterator[float]:
    """Arrivals at `rate` on average, but in bursts of `factor` times that rate for one tenth of the time, each of
    `length` seconds on average, and slower in between (a Poisson process modulated by two alternating states)."""
    share = 0.1
    quiet = (1 - share * factor) / (1 - share)
    now, high = 0.0, False
    while now < until:
        lasts = rng.expovariate(1 / (length if high else length * (1 - share) / share))
        level = rate * (factor if high else quiet)
        yield from (now + time for time in poisson(rng, level, min(lasts, until - now)))
        now, high = now + lasts, not high


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of a question and of a step; candidates per request; steps per solution."""

    question: int = 100
    step: int = 20
    candidates: int = 8
    steps: int = 10


class Traffic:
    """Makes callers; the frequency of the k-th question is proportional to 1 / k^`exponent`. Apart from questions and
    the paths of searches, no text occurs twice."""

    def __init__(self, rng: random.Random, questions: int, exponent: float = 1.0, shape: Shape | None = None) -> None:
        self._rng, self._shape = rng, shape or Shape()
        self._weights = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(questions)))
        self._questions = range(questions)
        self._names = itertools.count(questions)  # a question's node has the question's number

    def vote(self) -> Caller:
        """A caller with one request: new candidates for a question."""
        shape, question = self._shape, self._drawn()
        length = shape.steps * shape.step
        nodes = ((question, shape.question), *((next(self._names), length) for _ in range(shape.candidates)))
        return iter([Request(str(question), nodes, shape.candidates * (shape.question + length))])

    def search(self) -> Caller:
        """A caller with one request per step: the path so far with candidates for the next step, of which one is
        taken."""
        # drawn at once, so that searches do not depend on the order in which their requests are answered
        return self._grown(
            self._drawn(), [self._rng.randrange(self._shape.candidates) for _ in range(self._shape.steps)]
        )

    def _grown(self, question: int, taken: Sequence[int]) -> Caller:
        shape, path = self._shape, [(question, self._shape.question)]
        for depth, choice in enumerate(taken, 1):
            grown = [(next(self._names), shape.step) for _ in range(shape.candidates)]
            yield Request(str(question), (*path, *grown), shape.candidates * (shape.question + depth * shape.step))
            path.append(grown[choice])

    def _drawn(self) -> int:
        return self._rng.choices(self._questions, cum_weights=self._weights)[0]
