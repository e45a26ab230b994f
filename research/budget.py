"""A budget of candidates for many questions: spent where votes are least decided, against equally many for each.

The next candidate goes to the question that `least_decided` names, until as many are spent as N for each would be.
Candidates come in the same random order both ways, and a question can get no more than it has. So the two are compared
at the same total, on the same questions.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from training.evaluate.best_of_n import SIZES
from training.evaluate.bootstrap import Estimate, Numbers, compare
from training.evaluate.metrics import Share
from training.evaluate.records import JudgedCandidates
from training.evaluate.right_votes import right_share, uses_rewards
from training.evaluate.vote_results import in_markdown
from unprm.election.adaptive import stability
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import Strategy

VOTES: tuple[Strategy, ...] = ("majority", DEFAULT_STRATEGY)
ORDERS = 4
DRAWS = 50
"""Simulated futures of each vote: fewer than the gateway draws, for a comparison needs many votes."""


@dataclass(frozen=True, slots=True)
class Spent:
    """How often a vote is right with N candidates `each`, and with as many on average where it is least decided
    (`shared`); and the difference in points, its p-value corrected over all votes and N on these questions (Holm)."""

    each: Share
    shared: Share
    difference: str


class Standing(NamedTuple):
    """How the vote on one question stands: the candidates so far, the most that it may get, and its `stability`."""

    candidates: int
    budget: int
    stability: float


def least_decided(standings: Sequence[Standing]) -> int | None:
    """Index of the question that gets the next candidate, if many share a budget: the one whose vote is least stable;
    of equally stable ones that with the fewest candidates, then the first.

    None if no further candidate can change a vote, or every question has its most.
    """
    undecided = [k for k, each in enumerate(standings) if each.candidates < each.budget and each.stability < 1]
    return min(undecided, key=lambda k: (standings[k].stability, standings[k].candidates), default=None)


def measure(judged: Sequence[JudgedCandidates]) -> dict[tuple[Strategy, int], Spent]:
    """By vote and N: 2, 4, 8 …, of which every question has more."""
    fewest = min(len(candidates.classes) for candidates in judged)
    sizes = [size for size in SIZES if 1 < size < fewest]
    each, shared = {}, {}
    orders = [[_shuffled(candidates, order) for candidates in judged] for order in range(ORDERS)]
    for vote in VOTES:
        allocated = [allocate(vote, ordered, sizes) for ordered in orders]
        for size in sizes:
            each[vote, size] = _right(vote, orders, [[size] * len(judged)] * ORDERS)
            shared[vote, size] = _right(vote, orders, [by_size[size] for by_size in allocated])
    family = compare({key: Estimate.mean((shared[key] - each[key])[None]) for key in each})
    return {
        key: Spent(Share.of(each[key].tolist()), Share.of(shared[key].tolist()), comparison.figures)
        for key, comparison in family.items()
    }


def allocate(vote: Strategy, ordered: Sequence[JudgedCandidates], sizes: Sequence[int]) -> dict[int, list[int]]:
    """For each of `sizes`, ascending, the number of candidates of each question once that many a question are spent;
    or fewer, if no further one can change a vote. `ordered`: the candidates in the order in which they come."""
    standings = [Standing(0, len(candidates.classes), 0.0) for candidates in ordered]
    by_size: dict[int, list[int]] = {}
    spent = 0
    for size in sizes:
        while spent < size * len(ordered) and (chosen := least_decided(standings)) is not None:
            count, most = standings[chosen].candidates + 1, standings[chosen].budget
            standings[chosen] = Standing(count, most, _stability(vote, ordered[chosen], count))
            spent += 1
        by_size[size] = [standing.candidates for standing in standings]
    return by_size


def _stability(vote: Strategy, candidates: JudgedCandidates, count: int) -> float:
    values = candidates.rewards[:count] if uses_rewards(vote) else None
    return stability(vote, candidates.classes[:count], values, len(candidates.classes), draws=DRAWS)


def _shuffled(candidates: JudgedCandidates, order: int) -> JudgedCandidates:
    count = len(candidates.classes)
    return candidates.picked(random.Random(f"{order}/{candidates.id}").sample(range(count), count))


def _right(vote: Strategy, orders: Sequence[Sequence[JudgedCandidates]], counts: Sequence[Sequence[int]]) -> Numbers:
    """How right the vote is among the first candidates of each question, as many as `counts` says in each order: the
    mean over the orders, (questions,)."""
    right = [
        [right_share(vote, candidates, range(count)) for candidates, count in zip(ordered, taken, strict=True)]
        for ordered, taken in zip(orders, counts, strict=True)
    ]
    mean: Numbers = np.array(right, dtype=float).mean(axis=0)
    return mean


def markdown(measured: Mapping[str, Mapping[tuple[Strategy, int], Spent]]) -> str:
    columns = ["vote", "pool", "candidates a question", "equally many", "where undecided", "difference"]
    rows = [
        [vote, pool, str(size), spent.each.in_percent, spent.shared.in_percent, spent.difference]
        for pool, by_vote in measured.items()
        for (vote, size), spent in by_vote.items()
    ]
    return in_markdown(columns, rows)
