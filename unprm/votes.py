"""Electing an answer from candidate solutions. Pure: classes of answers and rewards in, a result out.

The paper's votes (section 5, Algorithms 2 and 3) beside the three that they are compared with.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

from unprm.errors import NoAnswer
from unprm.types import Candidate, DecidedBy, Strategy, VoteResult

TIE = 1e-9
"""Scores that differ by no more are tied."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class _Group(NamedTuple):
    """A class of equal answers before it is scored."""

    members: tuple[int, ...]
    total: float | None
    best: float | None

    @property
    def mean(self) -> float | None:
        return None if self.total is None else self.total / len(self.members)


def needs_rewards(strategy: Strategy, classes: Sequence[int | None]) -> bool:
    """Whether a vote has to score the candidates.

    `classes` as in `decide`. A single class wins without; `majority` never needs rewards, `hmr` only
    if the largest class has fewer than half of all candidates.
    """
    counts = _counts(classes)
    if len(counts) <= 1 or strategy == "majority":
        return False
    return not (strategy == "hmr" and _has_majority(counts, len(classes)))


def decide(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Sequence[float] | None = None,
    alpha: float = 0.5,
) -> VoteResult:
    """Elects a class.

    `classes[i]` names the answer class of candidate i, None if it has no answer: it can't win, but counts
    in N. `rewards[i]` in [0, 1] is needed where `needs_rewards` says so and breaks ties elsewhere. `alpha` in
    [0, 1] weighs reward against frequency in WRF. Ties (within `TIE`) go to the higher frequency, then
    to the higher mean reward, then to the first to appear.

    Raises `NoAnswer` if no candidate has an answer, `ValueError` if rewards are needed and missing.
    """
    counts = _counts(classes)
    if not counts:
        raise NoAnswer(len(classes))
    if rewards is None and needs_rewards(strategy, classes):
        raise ValueError(f"{strategy} needs the candidates' rewards to decide this vote")
    groups = [_group(name, classes, rewards) for name in counts]
    frequent = strategy == "hmr" and _has_majority(counts, len(classes))
    scored = _SCORES["majority" if frequent else strategy](groups, alpha)
    ranked = _rank(scored)
    tied = _tied(ranked)
    return VoteResult(
        strategy=strategy,
        decided_by=_decided_by(strategy, counts, len(classes)),
        candidates=tuple(ranked),
        solution_index=_representative(ranked[0], rewards),
        tied=tuple(range(len(tied))) if len(tied) > 1 else (),
        margin=_margin(ranked),
    )


def _counts(classes: Sequence[int | None]) -> dict[int, int]:
    """Frequency of each class, in order of first appearance."""
    counts: dict[int, int] = {}
    for name in classes:
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _has_majority(counts: dict[int, int], total: int) -> bool:
    return 2 * max(counts.values()) >= total


def _decided_by(strategy: Strategy, counts: dict[int, int], total: int) -> DecidedBy:
    if len(counts) == 1:
        return "unanimous"
    if strategy == "majority" or (strategy == "hmr" and _has_majority(counts, total)):
        return "majority"
    return "reward" if strategy in ("prm", "hmr") else "combined"


def _group(name: int, classes: Sequence[int | None], rewards: Sequence[float] | None) -> _Group:
    members = tuple(index for index, other in enumerate(classes) if other == name)
    if rewards is None:
        return _Group(members, None, None)
    own = [rewards[index] for index in members]
    # fsum rounds once, so the sum does not depend on the order of the candidates
    return _Group(members, math.fsum(own), max(own))


def _plain(group: _Group, score: float | None) -> Candidate:
    return Candidate(group.members, group.mean, group.best, None, None, score)


def _by_frequency(groups: Sequence[_Group], alpha: float) -> list[Candidate]:
    return [_plain(group, float(len(group.members))) for group in groups]


def _by_best_reward(groups: Sequence[_Group], alpha: float) -> list[Candidate]:
    return [_plain(group, group.best) for group in groups]


def _by_reward_sum(groups: Sequence[_Group], alpha: float) -> list[Candidate]:
    return [_plain(group, group.total) for group in groups]


def _by_reward_and_frequency(groups: Sequence[_Group], alpha: float) -> list[Candidate]:
    """Paper, Algorithm 3."""
    frequencies = _min_max([float(len(group.members)) for group in groups])
    means = [group.mean for group in groups if group.mean is not None]
    if not means:  # a single class that was not scored: both normalised values are 1 by definition
        return [Candidate(group.members, None, None, None, 1.0, 1.0) for group in groups]
    return [
        Candidate(group.members, group.mean, group.best, m, f, alpha * m + (1 - alpha) * f)
        for group, m, f in zip(groups, _min_max(means), frequencies, strict=True)
    ]


_SCORES: dict[Strategy, Callable[[Sequence[_Group], float], list[Candidate]]] = {
    "majority": _by_frequency,
    "prm": _by_best_reward,
    "hmr": _by_best_reward,
    "wrf": _by_reward_and_frequency,
    "weighted": _by_reward_sum,
}


def _min_max(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


def _rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first: again and again the preferred one among those tied with the best that is left."""
    left, ranked = list(candidates), []
    while left:
        best = min(_tied(left), key=_preference)
        left.remove(best)
        ranked.append(best)
    return ranked


def _preference(candidate: Candidate) -> tuple[int, float, int]:
    return (-candidate.count, -(candidate.mean_reward or 0.0), candidate.members[0])


def _tied(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those whose score is within `TIE` of the highest."""
    scores = [candidate.score for candidate in candidates if candidate.score is not None]
    if not scores:
        return list(candidates)
    top = max(scores)
    return [c for c in candidates if c.score is not None and top - c.score <= TIE]


def _margin(ranked: Sequence[Candidate]) -> float | None:
    if len(ranked) < 2 or ranked[0].score is None or ranked[1].score is None:
        return None
    # a tie won by frequency may have the hair lower score
    return max(0.0, ranked[0].score - ranked[1].score)


def _representative(winner: Candidate, rewards: Sequence[float] | None) -> int:
    if rewards is None:
        return winner.members[0]
    return max(winner.members, key=lambda index: (rewards[index], -index))
