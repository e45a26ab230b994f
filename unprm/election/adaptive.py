"""When to stop sampling candidates: when the vote can't change any more, or hardly will.

Adaptive consistency (Aggarwal et al., 2023) decides this for majority votes. Here every strategy is handled the same
way: future candidates are drawn from those seen so far, and the vote is taken on both together.
"""

import itertools
import random
from bisect import insort
from collections import Counter
from collections.abc import Hashable, Sequence

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
    *,
    bonds: Sequence[Hashable] | None = None,
    enough: float = 0.0,
    draws: int = DRAWS,
) -> float:
    """Probability that the class that wins now also wins among `budget` candidates; 1.0 only if nothing can change it.

    `classes` and `terms` as in `decide`; `values`: what the vote needs, so far. The next answer is a known one, with
    probability proportional to its frequency, or a new one; its value falls equally likely between any two neighbours
    among the answer's values, and 0 and the greatest (Hill, 1968). 0.0 while there is no winner. Deterministic.

    `bonds`: what keeps candidates in one class even if further candidates change the classes, by default their classes;
    None for a candidate that nothing keeps there. `enough`: ends the simulation once the probability is surely lower.
    """
    left = budget - len(classes)
    lacking = values is not None and drop_unanswered(classes, values) is None
    if (lacking and needed_signal(strategy, classes, terms) != "none") or all(name is None for name in classes):
        return 0.0 if left > 0 else 1.0
    winner = elected(strategy, classes, values, terms)
    bonds = classes if bonds is None else bonds
    kept = Counter(bond for name, bond in zip(classes, bonds, strict=True) if name == winner and bond is not None)
    if left <= 0 or (kept and _is_final(strategy, bonds, kept.most_common(1)[0][0], values, left, terms)):
        return 1.0
    rng = random.Random(0)
    same = 0
    for number in range(1, draws + 1):
        drawn, valued = _future(rng, classes, values, left)
        if valued is not None or needed_signal(strategy, drawn, terms) == "none":
            same += elected(strategy, drawn, valued, terms) == winner
        if same + draws - number < enough * draws:
            return same / number
    # that none of the draws differs does not prove that none can
    return min(same / draws, 1 - 1 / (draws + 1))


def _is_final(
    strategy: Strategy, bonds: Sequence[Hashable], kept: Hashable, values: Values | None, left: int, terms: BaseModel
) -> bool:
    """Whether the candidates of the bond `kept` win against all others, now and `left` to come, even if all of these
    had the same answer, and those without a value the highest."""
    sides = [int(bond != kept) for bond in bonds]
    worst = values and [1.0 if side and value is None else value for side, value in zip(sides, values, strict=True)]
    settled = VOTES[strategy].settled(tally(sides, terms, worst), left)
    return settled and elected(strategy, sides, worst, terms) == 0


def _future(
    rng: random.Random, classes: Sequence[int | None], values: Values | None, left: int
) -> tuple[list[int | None], Values | None]:
    """The candidates so far and `left` simulated ones, and their values, None if those so far have none."""
    drawn, new = list(classes), 1 + max(name for name in classes if name is not None)
    for _ in range(left):
        place = rng.random() * (len(drawn) + _NOVELTY)
        drawn.append(drawn[int(place)] if place < len(drawn) else new)
        new += drawn[-1] == new
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


def _next_value(rng: random.Random, seen: Sequence[float], greatest: float) -> float:
    place = rng.randrange(len(seen) + 1)
    low = seen[place - 1] if place else 0.0
    high = seen[place] if place < len(seen) else greatest
    return rng.uniform(low, high)


def sampled(strategy: Strategy, classes: Sequence[int | None], values: Values | None, stable: float, round: int) -> int:
    """How many of these candidates, in their order, a gateway samples: rounds of `round`, until the vote is stable."""
    for count in range(round, len(classes), round):
        known = values and values[:count]
        if stability(strategy, classes[:count], known, len(classes), enough=stable) >= stable:
            return count
    return len(classes)
