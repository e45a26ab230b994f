"""When to stop sampling candidates: when the vote can't change any more, or hardly will.

Adaptive consistency (Aggarwal et al., 2023) decides this for majority votes. Here every strategy is handled the same
way: future candidates are drawn from those seen so far, and the vote is taken on both together.
"""

import itertools
import random
from bisect import insort
from collections.abc import Sequence

from pydantic import BaseModel

from unprm.election.decide import drop_unanswered, elected, needed_signal, tally
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.votes.vote import Values

DRAWS = 200
"""Simulated futures; the share of those with the same winner is accurate to within 3.5 percentage points."""
_NOVELTY = 1.0
"""Weight of a new answer, where each candidate so far has weight 1 (a Chinese restaurant process)."""


def stability(
    strategy: Strategy,
    classes: Sequence[int | None],
    values: Values | None,
    budget: int,
    terms: BaseModel = DEFAULTS,
    draws: int = DRAWS,
) -> float:
    """Probability that the class that wins now also wins among `budget` candidates; 1.0 only if nothing can change it.

    `classes` and `terms` as in `decide`; `values`: what the vote needs, so far. The next answer is a known one, with
    probability proportional to its frequency, or a new one; its value falls equally likely between any two neighbours
    among the answer's values, and 0 and the greatest (Hill, 1968). 0.0 while there is no winner. Deterministic.
    """
    left = budget - len(classes)
    lacking = values is not None and drop_unanswered(classes, values) is None
    if (lacking and needed_signal(strategy, classes, terms) != "none") or all(name is None for name in classes):
        return 0.0 if left > 0 else 1.0
    if left <= 0 or VOTES[strategy].settled(tally(classes, terms, values), left):
        return 1.0
    winner = elected(strategy, classes, values, terms)
    rng = random.Random(0)
    same = 0
    for _ in range(draws):
        drawn, valued = _future(rng, classes, values, left)
        if valued is not None or needed_signal(strategy, drawn, terms) == "none":
            same += elected(strategy, drawn, valued, terms) == winner
    # that none of the draws differs does not prove that none can
    return min(same / draws, 1 - 1 / (draws + 1))


def _future(
    rng: random.Random, classes: Sequence[int | None], values: Values | None, left: int
) -> tuple[list[int | None], Values | None]:
    """The candidates so far and `left` simulated ones, and their values, None if those so far have none."""
    drawn = list(classes)
    for _ in range(left):
        drawn.append(_next_class(rng, drawn))
    if values is None:
        return drawn, None
    seen: dict[int | None, list[float]] = {}
    for name, value in zip(classes, values, strict=True):
        if name is not None and value is not None:
            insort(seen.setdefault(name, []), value)
    overall = sorted(itertools.chain(*seen.values()))
    greatest = max([1.0, *overall])  # confidences have no upper bound
    future = list(values)
    for name in drawn[len(classes) :]:
        value = _next_value(rng, seen.get(name, overall), greatest)
        insort(seen.setdefault(name, []), value)
        future.append(value)
    return drawn, future


def _next_class(rng: random.Random, classes: Sequence[int | None]) -> int | None:
    place = rng.random() * (len(classes) + _NOVELTY)
    if place < len(classes):
        return classes[int(place)]
    return 1 + max(name for name in classes if name is not None)


def _next_value(rng: random.Random, seen: Sequence[float], greatest: float) -> float:
    place = rng.randrange(len(seen) + 1)
    low = seen[place - 1] if place else 0.0
    high = seen[place] if place < len(seen) else greatest
    return rng.uniform(low, high)
