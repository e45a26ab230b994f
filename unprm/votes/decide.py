"""Electing an answer from candidate solutions. Pure: classes of answers and rewards in, a result out.

The paper's votes (section 5, Algorithms 2 and 3) and the three votes they are compared with.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

from unprm.errors import NoAnswer
from unprm.types import AnswerClass, DecidedBy, Normalization, Strategy, VoteResult

TIE = 1e-9
"""Scores that differ by at most this are tied."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


Rewards = Sequence[float | None]
"""One reward in [0, 1] per candidate, None for a candidate that could not be scored."""


class _Group(NamedTuple):
    """A class of equal answers before ranking; `rewards`: those of its scored members, None if nothing was scored."""

    members: tuple[int, ...]
    rewards: tuple[float, ...] | None

    @property
    def total(self) -> float:
        # fsum rounds once, so the sum does not depend on the order of the candidates
        return math.fsum(self.rewards or ())

    @property
    def mean(self) -> float:
        return self.total / len(self.rewards) if self.rewards else 0.0

    @property
    def best(self) -> float:
        return max(self.rewards or (), default=0.0)

    def scored(self, score: float | None, normalized: tuple[float | None, float | None] = (None, None)) -> AnswerClass:
        mean, best = (self.mean, self.best) if self.rewards else (None, None)
        return AnswerClass(self.members, mean, best, *normalized, score)


class _Ballot(NamedTuple):
    """What a strategy ranks: all classes, the number N of all candidates, and the settings of WRF."""

    groups: Sequence[_Group]
    total: int
    alpha: float
    normalization: Normalization


def needs_rewards(strategy: Strategy, classes: Sequence[int | None]) -> bool:
    """Whether a vote has to score the candidates.

    `classes` as in `decide`. A single class wins without rewards; `majority` never needs them, `hmr` only if
    no class has a majority.
    """
    counts = _counts(classes)
    return len(counts) > 1 and not _by_majority(strategy, counts, len(classes))


def decide(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Rewards | None = None,
    alpha: float = 0.5,
    normalization: Normalization = "minmax",
) -> VoteResult:
    """Elects a class.

    `classes[i]`: the answer class of candidate i, None if it has no answer; it then can't win, but counts in N.
    `rewards[i]`: in [0, 1], required if `needs_rewards` says so; None if candidate i could not be scored: the reward
    of its class then comes from the other members, 0 if there is none. `alpha` in [0, 1] and `normalization` are
    for WRF. If frequency alone decides, rewards change nothing. Ties (within `TIE`) go to the higher frequency, then
    to the higher mean reward, then to the class that appears first.

    Raises `NoAnswer` if no candidate has an answer, `ValueError` if rewards are needed and missing.
    """
    counts = _counts(classes)
    if not counts:
        raise NoAnswer(len(classes))
    if needs_rewards(strategy, classes) and not _any_reward(rewards):
        raise ValueError(f"{strategy} needs the candidates' rewards to decide this vote")
    by_majority = _by_majority(strategy, counts, len(classes))
    groups = [_group(name, classes, rewards) for name in counts]
    scored = _SCORES["majority" if by_majority else strategy](_Ballot(groups, len(classes), alpha, normalization))
    ranked = _rank(scored, by_reward=not by_majority)
    tied = _tied(ranked)
    return VoteResult(
        strategy=strategy,
        decided_by=_decided_by(strategy, counts, by_majority),
        classes=tuple(ranked),
        solution_index=ranked[0].members[0] if by_majority else _representative(ranked[0], rewards),
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


def _by_majority(strategy: Strategy, counts: dict[int, int], total: int) -> bool:
    """Whether frequency alone decides. For `hmr`: one class, and no other, has half of all candidates or more."""
    first, second = sorted([*counts.values(), 0, 0], reverse=True)[:2]
    return strategy == "majority" or (strategy == "hmr" and 2 * first >= total and first > second)


def _any_reward(rewards: Rewards | None) -> bool:
    return rewards is not None and any(reward is not None for reward in rewards)


def _decided_by(strategy: Strategy, counts: dict[int, int], by_majority: bool) -> DecidedBy:
    if len(counts) == 1:
        return "unanimous"
    if by_majority:
        return "majority"
    return "reward" if strategy in ("prm", "hmr") else "combined"


def _group(name: int, classes: Sequence[int | None], rewards: Rewards | None) -> _Group:
    members = tuple(index for index, other in enumerate(classes) if other == name)
    if rewards is None:
        return _Group(members, None)
    return _Group(members, tuple(reward for index in members if (reward := rewards[index]) is not None))


def _by_frequency(ballot: _Ballot) -> list[AnswerClass]:
    return [group.scored(float(len(group.members))) for group in ballot.groups]


def _by_best_reward(ballot: _Ballot) -> list[AnswerClass]:
    return [group.scored(None if group.rewards is None else group.best) for group in ballot.groups]


def _by_reward_sum(ballot: _Ballot) -> list[AnswerClass]:
    return [group.scored(None if group.rewards is None else group.total) for group in ballot.groups]


def _by_reward_and_frequency(ballot: _Ballot) -> list[AnswerClass]:
    """Algorithm 3 of the paper; with `share`, the mean reward and the share of all candidates, unnormalized."""
    groups, alpha = ballot.groups, ballot.alpha
    frequencies = [len(group.members) / ballot.total for group in groups]
    rewards = [group.mean for group in groups]
    if ballot.normalization == "minmax":
        frequencies, rewards = _min_max([len(group.members) for group in groups]), _min_max(rewards)
    if groups[0].rewards is None:  # a single class that was not scored: min-max makes its values 1 whatever they are
        return [groups[0].scored(1.0 if ballot.normalization == "minmax" else None, (None, frequencies[0]))]
    return [
        group.scored(alpha * reward + (1 - alpha) * frequency, (reward, frequency))
        for group, reward, frequency in zip(groups, rewards, frequencies, strict=True)
    ]


_SCORES: dict[Strategy, Callable[[_Ballot], list[AnswerClass]]] = {
    "majority": _by_frequency,
    "prm": _by_best_reward,
    "hmr": _by_best_reward,
    "wrf": _by_reward_and_frequency,
    "weighted": _by_reward_sum,
}


def _min_max(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


def _rank(classes: Sequence[AnswerClass], *, by_reward: bool) -> list[AnswerClass]:
    """Best first: repeatedly takes the preferred class among those tied with the best remaining one."""
    left, ranked = list(classes), []
    while left:
        best = min(_tied(left), key=_preference if by_reward else _first)
        left.remove(best)
        ranked.append(best)
    return ranked


def _preference(answer: AnswerClass) -> tuple[int, float, int]:
    return (-answer.count, -(answer.mean_reward or 0.0), _first(answer))


def _first(answer: AnswerClass) -> int:
    return answer.members[0]


def _tied(classes: Sequence[AnswerClass]) -> list[AnswerClass]:
    """The classes whose score is within `TIE` of the highest."""
    scores = [answer.score for answer in classes if answer.score is not None]
    if not scores:
        return list(classes)
    top = max(scores)
    return [c for c in classes if c.score is not None and top - c.score <= TIE]


def _margin(ranked: Sequence[AnswerClass]) -> float | None:
    if len(ranked) < 2 or ranked[0].score is None or ranked[1].score is None:
        return None
    # the winner of a tie may have a slightly lower score
    return max(0.0, ranked[0].score - ranked[1].score)


def _representative(winner: AnswerClass, rewards: Rewards | None) -> int:
    """The first member with the highest reward; the first member if none has a reward."""
    if rewards is None:
        return winner.members[0]
    return max(winner.members, key=lambda index: (-1.0 if rewards[index] is None else rewards[index], -index))
