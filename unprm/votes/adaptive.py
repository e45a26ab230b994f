"""When to stop sampling candidates: when the vote can't change any more, or hardly will.

Adaptive consistency (Aggarwal et al., 2023) decides this for majority votes. Here every strategy is handled the same
way: future candidates are drawn from those seen so far, and the vote is taken on both together.
"""

import random
from bisect import insort
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from unprm.types import Normalization, Strategy
from unprm.votes.decide import TIE, Rewards, decide, needs_rewards

DRAWS = 200
"""Simulated futures; the share of those with the same winner is accurate to within 3.5 percentage points."""
_NOVELTY = 1.0
"""Weight of a new answer, where each candidate so far has weight 1 (a Chinese restaurant process)."""


def stability(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Rewards | None,
    budget: int,
    alpha: float = 0.5,
    normalization: Normalization = "minmax",
    draws: int = DRAWS,
) -> float:
    """Probability that the class that wins now also wins among `budget` candidates; 1.0 only if nothing can change it.

    `classes`, `rewards`, `alpha` and `normalization` as in `votes.decide`, for the candidates so far. The next answer
    is a known one, with probability proportional to its frequency, or a new one; its reward is equally likely to fall
    between any two neighbours among the rewards seen with that answer, 0 and 1 included (Hill, 1968). 0.0 if no
    candidate has an answer and the budget is not used up. Deterministic.
    """
    left = budget - len(classes)
    if all(name is None for name in classes):
        return 0.0 if left > 0 else 1.0
    if left <= 0 or _settled(strategy, classes, rewards, budget):
        return 1.0
    vote = partial(decide, strategy, alpha=alpha, normalization=normalization)
    winner = classes[vote(classes, rewards).solution_index]
    rng = random.Random(0)
    same = 0
    for _ in range(draws):
        future = _future(rng, classes, rewards, left)
        if future.rewards is not None or not needs_rewards(strategy, future.classes):
            same += future.classes[vote(*future).solution_index] == winner
    # that none of the draws differs does not prove that none can
    return min(same / draws, 1 - 1 / (draws + 1))


def _settled(strategy: Strategy, classes: Sequence[int | None], rewards: Rewards | None, budget: int) -> bool:
    """Whether no future candidates can change the winner; False where that isn't easily decided."""
    left = budget - len(classes)
    if strategy in ("majority", "hmr"):
        first, second = _two_highest([1.0] * len(classes), classes)
        return 2 * first > budget if strategy == "hmr" else first > second + left
    if strategy == "weighted" and rewards is not None:
        first, second = _two_highest(rewards, classes)
        return first > second + left + TIE
    return False


def _two_highest(values: Rewards, classes: Sequence[int | None]) -> tuple[float, float]:
    """The two highest sums of values per class; a class that is not seen yet has 0."""
    sums: dict[int, float] = {}
    for name, value in zip(classes, values, strict=True):
        if name is not None:
            sums[name] = sums.get(name, 0.0) + (value or 0.0)
    first, second = sorted([*sums.values(), 0.0, 0.0], reverse=True)[:2]
    return first, second


class _Future(NamedTuple):
    """The candidates so far and simulated future ones; `rewards` is None if those so far have none."""

    classes: Sequence[int | None]
    rewards: Rewards | None


def _future(rng: random.Random, classes: Sequence[int | None], rewards: Rewards | None, left: int) -> _Future:
    """The candidates so far and `left` simulated ones."""
    drawn = list(classes)
    for _ in range(left):
        drawn.append(_next_class(rng, drawn))
    if rewards is None:
        return _Future(drawn, None)
    seen: dict[int | None, list[float]] = {}
    for name, reward in zip(classes, rewards, strict=True):
        if reward is not None:
            insort(seen.setdefault(name, []), reward)
    overall = sorted(reward for reward in rewards if reward is not None)
    future = list(rewards)
    for name in drawn[len(classes) :]:
        reward = _next_reward(rng, seen.get(name, overall))
        insort(seen.setdefault(name, []), reward)
        future.append(reward)
    return _Future(drawn, future)


def _next_class(rng: random.Random, classes: Sequence[int | None]) -> int | None:
    place = rng.random() * (len(classes) + _NOVELTY)
    if place < len(classes):
        return classes[int(place)]
    return 1 + max(name for name in classes if name is not None)


def _next_reward(rng: random.Random, seen: Sequence[float]) -> float:
    """`seen` ascending."""
    place = rng.randrange(len(seen) + 1)
    low = seen[place - 1] if place else 0.0
    high = seen[place] if place < len(seen) else 1.0
    return rng.uniform(low, high)
