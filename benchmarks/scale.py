"""How many replicas a load takes, by simulation: the same question to the same replica against any replica, for
searches that score a path again whenever it has grown by a step, and for votes. `replicas` holds it against real ones.

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
"""Seconds for a computed token (0.1 billion parameters in float32 on one core, as `replicas` measures it) and for HTTP
(`overhead`). Another replica: multiply all times of the outcome by its seconds for a token over these."""
CACHE = 2**30 // 6144
"""Tokens that a replica keeps: the default of 1 GiB, at 6 KiB of keys and values for a token of that model."""
QUESTIONS = 5000
DEADLINE, OVERFLOW, PAUSE = 5.0, 1.0, 1.0
"""Seconds: for a request, and of work that waits before one is refused; of work that waits before a replica is passed
over; until a search has sampled its next step."""
BEFORE, DURING, REQUESTS = 30.0, 20.0, 10_000
"""Seconds that are left out; seconds that are measured at least; requests that are measured at least."""
SHAPE = Shape()
COUNTS, RATE = (1, 8, 64, 1000), 100.0
LOADS: dict[Arrivals, float] = {"poisson": 0.7, "bursts": 0.35}
"""Share of what the replicas could do, if nothing were computed twice."""


def run() -> list[Comparison]:
    """The same callers for both, from the same seed."""
    rows: list[Comparison] = []
    for count in COUNTS:
        for arrivals, load in LOADS.items():
            rows += _rows(count, load * capacity(count), arrivals)
    rows += _rows(64, 0.6 * capacity(64, "vote"), "poisson", "vote")
    for arrivals in LOADS:
        what = f"replicas for {RATE:.0f} requests of searches a second ({arrivals}), p99 within {DEADLINE:.0f} s"
        ours, theirs = needed(RATE, arrivals, "affinity"), needed(RATE, arrivals, "random")
        rows.append(Comparison(what, ours, "any replica", theirs, 1, "replicas"))
    return rows


def capacity(count: int, kind: Kind = "search") -> float:
    """Requests a second that `count` replicas could answer at most, if each distinct token of a caller's requests were
    computed once."""
    grown = SHAPE.candidates * SHAPE.step * SHAPE.steps
    requests = SHAPE.steps if kind == "search" else 1
    return count * requests / ((SHAPE.question + grown) * TOKEN + requests * REQUEST)


def trial(
    count: int, rate: float, arrivals: Arrivals, how: How, kind: Kind = "search", overflow: float = OVERFLOW
) -> Outcome:
    """The outcome of `rate` requests a second, once searches end as often as they begin."""
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
    """The fewest replicas that answer 99 % of the requests within the deadline at a load below 1."""

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
    yield Comparison(f"{what}: hit rate", ours.hit_rate, "any replica", theirs.hit_rate, 1, "share")
    yield Comparison(
        f"{what}: answered within {DEADLINE:.0f} s; {_summary(ours, count)}",
        ours.rate(DEADLINE),
        f"any replica; {_summary(theirs, count)}",
        theirs.rate(DEADLINE),
        1,
        "/s",
    )


def _summary(outcome: Outcome, count: int) -> str:
    return f"p50 {outcome.quantile(0.5):.2f} s, p99 {outcome.quantile(0.99):.2f} s, load {outcome.load(count):.0%}"


def draw(file: Path) -> None:
    """Draws the latencies of 64 replicas by their load, and by when a replica is passed over."""
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
