"""The votes: how each one scores the classes of equal answers. Pure.

The paper's (section 5, Algorithms 2 and 3), those it is compared with, and those of later papers. To add a vote, see
"Where to begin" in CONTRIBUTING.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from unprm.calibration import log_odds
from unprm.types import DecidedBy, Strategy
from unprm.votes.confidence import cut
from unprm.wire import VoteTerms

Signal = Literal["none", "reward", "confidence"]
"""What a vote needs of the candidates beside their answers: rewards of a PRM, or confidences of their own model."""

Values = Sequence[float | None]
"""One value per candidate, None for a candidate without one."""

SURE = 1e-4
"""`logodds` takes rewards from [SURE, 1 - SURE]: no candidate alone outweighs many."""


class Group(NamedTuple):
    """A class of equal answers: the indices of its candidates, ascending."""

    members: tuple[int, ...]

    def of(self, values: Values) -> list[float]:
        """The members' values, as far as there are any."""
        return [value for index in self.members if (value := values[index]) is not None]


class Ballot(NamedTuple):
    """What a vote is taken on. `total`: the number N of all candidates, also of those without an answer. `values`: of
    the vote's signal; None as a whole if the vote needs none, or frequency alone decides."""

    groups: Sequence[Group]
    total: int
    values: Values | None
    terms: VoteTerms


class Scored(NamedTuple):
    """A class's score, None where it can't be elected for its values; and the normalized terms of WRF."""

    score: float | None
    normalized_reward: float | None = None
    normalized_frequency: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A vote. `score`: the score of each group. `majority`: given the ballot, whether frequency alone decides.
    `decided_by`: what a result is called that frequency alone didn't decide."""

    signal: Signal
    decided_by: DecidedBy
    score: Callable[[Ballot], list[Scored]]
    majority: Callable[[Sequence[int], int, VoteTerms], bool] = lambda counts, total, terms: False


def by_frequency(ballot: Ballot) -> list[Scored]:
    """The number of candidates of each class."""
    return [Scored(float(len(group.members))) for group in ballot.groups]


def _by_highest(ballot: Ballot) -> list[Scored]:
    if ballot.values is None:
        return [Scored(None) for _ in ballot.groups]
    return [Scored(max(group.of(ballot.values), default=0.0)) for group in ballot.groups]


def _summed(weigh: Callable[[Values, Ballot], Values]) -> Callable[[Ballot], list[Scored]]:
    """Weighted majority: the sum of the candidates' weights, made from their values."""

    def score(ballot: Ballot) -> list[Scored]:
        if ballot.values is None:
            return [Scored(None) for _ in ballot.groups]
        weights = weigh(ballot.values, ballot)
        # fsum rounds once, so the sum does not depend on the order of the candidates
        return [Scored(math.fsum(group.of(weights))) for group in ballot.groups]

    return score


def _as_they_are(values: Values, ballot: Ballot) -> Values:
    return values


def _log_odds(rewards: Values, ballot: Ballot) -> Values:
    """Log-likelihood ratio of each candidate for its answer (Kuang et al., 2025, arXiv 2510.13918): the log-odds of its
    reward, plus those of the model that wrote it against each of the other answers.

    A candidate that was not scored speaks for its answer by having been written alone.
    """
    accuracy, scale = ballot.terms.accuracy, ballot.terms.scale
    written = log_odds(accuracy) + math.log(max(1, len(ballot.groups) - 1))
    return [written if reward is None else scale * log_odds(reward, SURE) + written for reward in rewards]


def _softmax(values: Values, ballot: Ballot) -> Values:
    """Soft best-of-N (Verdun et al., 2025, arXiv 2505.03156) takes candidate i with this probability; with confidences
    it is the weight of CISC (Taubenfeld et al., 2025, arXiv 2502.06233)."""
    known = [value for value in values if value is not None]
    highest = max(known)
    scaled = [None if v is None else math.exp((v - highest) / ballot.terms.temperature) for v in values]
    total = math.fsum(weight for weight in scaled if weight is not None)
    return [None if weight is None else weight / total for weight in scaled]


def _most_confident(confidences: Values, ballot: Ballot) -> Values:
    """The confidences of the top share, ties at its end included (Fu et al., 2025, arXiv 2508.15260)."""
    last = cut([value for value in confidences if value is not None], ballot.terms.top_share)
    return [value if value is not None and value >= last else None for value in confidences]


def _borda(confidences: Values, ballot: Ballot) -> Values:
    """Borda votes by rank (Kang et al., 2025, arXiv 2502.18581): (n - rank + 1) ** power, from n candidates with a
    confidence; equal ones share the mean of their votes."""
    known = sorted(value for value in confidences if value is not None)
    votes: dict[float, list[float]] = {}
    for place, value in enumerate(known, start=1):
        votes.setdefault(value, []).append(place**ballot.terms.power)
    shared = {value: math.fsum(each) / len(each) for value, each in votes.items()}
    return [None if value is None else shared[value] for value in confidences]


def _by_reward_and_frequency(ballot: Ballot) -> list[Scored]:
    """Algorithm 3 of the paper; with `share`, the mean reward and the share of all candidates, unnormalized."""
    terms, counts = ballot.terms, [len(group.members) for group in ballot.groups]
    minmax = terms.normalization == "minmax"
    frequencies = _min_max(counts) if minmax else [count / ballot.total for count in counts]
    if ballot.values is None:  # a single class that was not scored: min-max makes its values 1 whatever they are
        return [Scored(1.0 if minmax else None, None, frequencies[0])]
    rewards = [mean(group.of(ballot.values)) for group in ballot.groups]
    rewards = _min_max(rewards) if minmax else rewards
    return [
        Scored(terms.alpha * reward + (1 - terms.alpha) * frequency, reward, frequency)
        for reward, frequency in zip(rewards, frequencies, strict=True)
    ]


def _by_frequent_reward(ballot: Ballot) -> list[Scored]:
    """Best-of-Majority (Di et al., 2025, arXiv 2510.03199): the highest reward among the frequent answers."""
    kept = _frequent([len(group.members) for group in ballot.groups], ballot.total, ballot.terms)
    return [scored if frequent else Scored(None) for scored, frequent in zip(_by_highest(ballot), kept, strict=True)]


def _frequent(counts: Sequence[int], total: int, terms: VoteTerms) -> list[bool]:
    """Whether each class has `min_share` of all candidates; if none has it, whether no other is more frequent."""
    least = min(terms.min_share * total - 1e-9, max(counts))
    return [count >= least for count in counts]


def _has_half(counts: Sequence[int], total: int, terms: VoteTerms) -> bool:
    """Whether one class, and no other, has half of all candidates or more (Algorithm 2 of the paper)."""
    first, second = sorted([*counts, 0, 0], reverse=True)[:2]
    return 2 * first >= total and first > second


def _one_frequent(counts: Sequence[int], total: int, terms: VoteTerms) -> bool:
    return sum(_frequent(counts, total, terms)) == 1


RULES: dict[Strategy, Rule] = {
    "majority": Rule("none", "majority", by_frequency, lambda counts, total, terms: True),
    "prm": Rule("reward", "reward", _by_highest),
    "hmr": Rule("reward", "reward", _by_highest, _has_half),
    "wrf": Rule("reward", "combined", _by_reward_and_frequency),
    "weighted": Rule("reward", "combined", _summed(_as_they_are)),
    "logodds": Rule("reward", "combined", _summed(_log_odds)),
    "best_of_majority": Rule("reward", "reward", _by_frequent_reward, _one_frequent),
    "soft": Rule("reward", "combined", _summed(_softmax)),
    "cisc": Rule("confidence", "confidence", _summed(_softmax)),
    "deepconf": Rule("confidence", "confidence", _summed(_most_confident)),
    "self_certainty": Rule("confidence", "confidence", _summed(_borda)),
}


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of no values."""
    return math.fsum(values) / len(values) if values else 0.0


def _min_max(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]
