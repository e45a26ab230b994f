"""How many replicas a load needs, by simulation: routing by question against routing to any replica, for searches that
score a path again whenever it has grown by a step, and for votes. `replicas` compares the simulation with measurements.

    python -m benchmarks.scale docs/scaling.png   # the figure of docs/scaling.md
"""

import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt

from benchmarks.simulation import (
    Outcome,
    Replicas,
    Router,
    Shape,
    Traffic,
    bursts,
    by_affinity,
    by_chance,
    poisson,
    simulate,
)
from benchmarks.timing import Comparison

Arrivals = Literal["poisson", "bursts"]
Kind = Literal["search", "vote"]
How = Literal["affinity", "random"]
TOKEN, REQUEST = 1.57e-3, 2.2e-3
"""Seconds per computed token (0.1 billion parameters in float32 on one core, measured by `replicas`) and per request
for HTTP (`overhead`). For other replicas, multiply all times of the outcome by the ratio of their seconds per token."""
CACHE = 2**30 // 6144
"""Tokens in a replica's prefix cache: the default of 1 GiB, at 6 KiB of keys and values per token of that model."""
QUESTIONS = 5000
DEADLINE, OVERFLOW, PAUSE = 5.0, 1.0, 1.0
"""In seconds. `DEADLINE`: of a request, and of queued work beyond which requests are refused; `OVERFLOW`: queued work
beyond which a replica is passed over; `PAUSE`: until a search has sampled its next step."""
BEFORE, DURING, REQUESTS = 30.0, 20.0, 10_000
"""Warm-up seconds that are left out; minimum number of seconds, and of requests, that are measured."""
SHAPE = Shape()
COUNTS, RATE = (1, 8, 64, 1000), 100.0
LOADS: dict[Arrivals, float] = {"poisson": 0.7, "bursts": 0.35}
"""Load as a share of the replicas' capacity if nothing were computed twice."""


def run() -> list[Comparison]:
    """Compares both routings with the same clients, from the same seed."""
    rows: list[Comparison] = []
    for count in COUNTS:
        for arrivals, load in LOADS.items():
            rows += _rows(count, load * capacity(count), arrivals)
    rows += _rows(64, 0.6 * capacity(64, "vote"), "poisson", "vote")
    for arrivals in LOADS:
        what = f"replicas for {RATE:.0f} requests of searches a second ({arrivals}), p99 within {DEADLINE:.0f} s"
        ours, theirs = needed(RATE, arrivals, "affinity"), needed(RATE, arrivals, "random")
        rows.append(Comparison(what, ours, "any replica", theirs, unit="replicas"))
    return rows


def capacity(count: int, kind: Kind = "search") -> float:
    """Maximum requests per second of `count` replicas, if each distinct token of a client's requests is computed
    once."""
    grown = SHAPE.candidates * SHAPE.step * SHAPE.steps
    requests = SHAPE.steps if kind == "search" else 1
    return count * requests / ((SHAPE.question + grown) * TOKEN + requests * REQUEST)


def trial(
    count: int, rate: float, arrivals: Arrivals, how: How, kind: Kind = "search", overflow: float = OVERFLOW
) -> Outcome:
    """The outcome of `rate` requests per second in the steady state, after `BEFORE` seconds."""
    rng = random.Random(0)
    until = BEFORE + max(DURING, REQUESTS / rate)
    traffic = Traffic(rng, QUESTIONS, shape=SHAPE)
    times = {"poisson": poisson, "bursts": bursts}[arrivals](
        rng, rate / (SHAPE.steps if kind == "search" else 1), until
    )
    callers = [(time, getattr(traffic, kind)()) for time in times]
    replicas = Replicas(count, TOKEN, REQUEST, CACHE, overflow, DEADLINE)
    return simulate(callers, replicas, _router(how, count), PAUSE).between(BEFORE, until)


def needed(rate: float, arrivals: Arrivals, how: How) -> int:
    """Minimum number of replicas that answer 99 % of the requests within the deadline at a load below 1."""

    def enough(count: int) -> bool:
        outcome = trial(count, rate, arrivals, how)
        return outcome.served(DEADLINE) >= 0.99 and outcome.load(count) < 1

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@cache
def _affine(count: int) -> Router:
    return by_affinity(count)


def _router(how: How, count: int) -> Router:
    return _affine(count) if how == "affinity" else by_chance(random.Random(1), count)


def _rows(count: int, rate: float, arrivals: Arrivals, kind: Kind = "search") -> Iterator[Comparison]:
    ours, theirs = (trial(count, rate, arrivals, how, kind) for how in ("affinity", "random"))
    what = f"{count:,} replicas, {kind} ({arrivals}), {rate:,.0f} requests a second"
    yield Comparison(f"{what}: hit rate", ours.hit_rate, "any replica", theirs.hit_rate, unit="share")
    yield Comparison(
        f"{what}: answered within {DEADLINE:.0f} s; {_summary(ours, count)}",
        ours.rate(DEADLINE),
        f"any replica; {_summary(theirs, count)}",
        theirs.rate(DEADLINE),
        unit="/s",
    )


def _summary(outcome: Outcome, count: int) -> str:
    return f"p50 {outcome.quantile(0.5):.2f} s, p99 {outcome.quantile(0.99):.2f} s, load {outcome.load(count):.0%}"


def draw(file: Path) -> None:
    """Draws the latencies of 64 replicas by load, and by the queued work beyond which a replica is passed over."""
    figure, (by_load, by_overflow) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    full = capacity(64)
    loads = [0.1 * tenths for tenths in range(3, 11)]
    shown: dict[How, tuple[str, str]] = {"affinity": ("o-", "the question's replica"), "random": ("s--", "any replica")}
    for how, (style, label) in shown.items():
        outcomes = [trial(64, load * full, "poisson", how) for load in loads]
        by_load.plot(
            [100 * load for load in loads], [outcome.quantile(0.99) for outcome in outcomes], style, label=label
        )
    by_load.set(xlabel="load, % of what 64 replicas could do", ylabel="p99 of the answers, s", ylim=(0, None))
    waits = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0]
    outcomes = [trial(64, 0.7 * full, "poisson", "affinity", overflow=wait) for wait in waits]
    by_overflow.plot(waits, [outcome.quantile(0.99) for outcome in outcomes], "o-", label="p99, s")
    by_overflow.plot(waits, [outcome.quantile(0.5) for outcome in outcomes], "s--", label="p50, s")
    by_overflow.set(
        xlabel="work that waits before a replica is passed over, s (load 70 %)", xscale="log", ylim=(0, None)
    )
    by_overflow.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    for axes in (by_load, by_overflow):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
