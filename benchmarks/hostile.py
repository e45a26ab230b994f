"""Votes whose answers are made to take forever to compare, sent at the same time as honest votes: how long each takes,
and whether the honest ones have the same results as without the hostile ones."""

import random
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import clients, queries, servers
from benchmarks.timing import Comparison

HOSTILE, HOSTILE_CLIENTS, WARM, HONEST, HONEST_CLIENTS, CANDIDATES, WITHIN = 200, 4, 30, 300, 2, 8, 2.0
EXPRESSIONS = 0.1
"""Share of the honest votes whose answers have unknowns and functions."""
TERMS = 140
"""Terms of a sum: the most for which an answer is not yet compared as plain text because of its length."""
KINDS: tuple[Callable[[int], str], ...] = (
    lambda n: "+".join(f"\\sqrt{{x+{n + k}}}" for k in range(TERMS)),
    lambda n: "+".join(f"\\sin(x^{{{k}}})" for k in range(n, n + TERMS)),
    lambda n: "x^2+" * TERMS + f"\\sin({n}x)",
    lambda n: f"9^{{9^{{9^{{{n}}}}}}}",
    lambda n: f"(1+\\sqrt{{2}}x+\\sqrt{{3}})^{{{n}}}",
    lambda n: f"\\sin(\\cos(\\tan({n}^{{{n}^{{{n}}}}}x)))",
)


def run() -> list[Comparison]:
    """Uses the embedded model; hostile votes come with step scores, so that they only cost the comparison."""
    rng = random.Random(0)
    warm, honest = ([vote(rng, *query) for query in queries.zipf(rng, count, CANDIDATES)] for count in (WARM, HONEST))
    hostile = [attack(rng, number) for number in range(HOSTILE)]
    options = ["--prefix-cache-gb=0", f"--equivalence-deadline={WITHIN}"]
    with servers.unprm(*options) as (url, _):
        _measure(url, warm, HONEST_CLIENTS)
        alone, expected = _measure(url, honest, HONEST_CLIENTS)
    with servers.unprm(*options) as (url, _), ThreadPoolExecutor(1) as pool:
        _measure(url, warm, HONEST_CLIENTS)
        attacks = pool.submit(_measure, url, hostile, HOSTILE_CLIENTS)
        beside, elected = _measure(url, honest, HONEST_CLIENTS)
        over = attacks.done()
        taken, _ = attacks.result()
    if wrong := sum(map(str.__ne__, elected, expected)):
        raise RuntimeError(f"{wrong} of {HONEST} honest votes came out otherwise beside hostile ones")
    what = f"{HOSTILE} hostile votes{', over before the honest ones' if over else ''}"
    return [
        Comparison(f"p99 of honest votes beside {what}", _p99(beside), "alone", _p99(alone)),
        Comparison(f"p50 of honest votes beside {what}", statistics.median(beside), "alone", statistics.median(alone)),
        Comparison("the longest of the hostile votes", max(taken), "the deadline for comparing", WITHIN),
    ]


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def _measure(url: str, requests: list[tuple[str, bytes]], count: int) -> tuple[list[float], list[str]]:
    """The seconds of each request, and the elected answers in the order of the requests."""
    replies = clients.call(url, requests, count)
    return [reply.seconds for reply in replies], [reply.json()["answer"] for reply in replies]


def vote(rng: random.Random, problem: str, solutions: list[list[str]]) -> tuple[str, bytes]:
    """An honest vote, whose answers are fractions or expressions."""
    numbers = [rng.randint(1, 3) for _ in solutions]
    if rng.random() < EXPRESSIONS:
        spelled = [f"\\frac{{{n}x^2+{len(problem)}}}{{\\sin(x)+{rng.random():.6f}}}" for n in numbers]
    else:
        spelled = [f"\\frac{{{rng.randint(1, 3) * n}}}{{{rng.choice([7, 11, 13])}}}" for n in numbers]
    candidates = [{"steps": steps, "answer": answer} for steps, answer in zip(solutions, spelled, strict=True)]
    return clients.request("/vote/wrf", {"problem": problem, "solutions": candidates})


def attack(rng: random.Random, number: int) -> tuple[str, bytes]:
    """A vote with an answer that takes forever to compare, different for every number."""
    answers = [KINDS[number % len(KINDS)](number), *(str(rng.randint(1, 3)) for _ in range(3))]
    candidates: list[dict[str, Any]] = [{"steps": ["a"], "answer": answer, "step_scores": [0.5]} for answer in answers]
    return clients.request("/vote/wrf", {"solutions": candidates})
