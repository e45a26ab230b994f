"""Repeated votes on judged candidates: all votes, values of α, tie-breaks, and a vote that is not in the paper."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from training.evaluate import best_of_n
from training.evaluate.bootstrap import Numbers
from training.evaluate.records import JudgedCandidates
from training.evaluate.right_votes import STUDIED, RightShare, right_share
from unprm.election import decide as votes
from unprm.types import AnswerClass
from unprm.votes.registry import VoteTerms
from unprm.votes.vote import TIE

Seeds = Sequence[Sequence[JudgedCandidates]]
"""The judged candidates of every question, once per training seed of the PRM."""
VOTES: dict[str, RightShare] = {name: partial(right_share, name) for name in STUDIED}
ALPHAS = (0.5, *(k / 10 for k in range(11) if k != 5))
"""Values of α; the paper's comes first."""
PRIORS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
TIE_BREAKS = ("frequency", "mean reward", "first appearance")
CLIP = 1e-4
"""Rewards are clipped to this distance from 0 and 1, so that one candidate cannot outweigh all others."""


def sizes(judged: Seeds) -> list[int]:
    """The N for which every question has enough candidates."""
    fewest = min(len(candidates.classes) for candidates in judged[0])
    return [size for size in best_of_n.SIZES if size <= fewest]


def outcomes(judged: Seeds, size: int, rule: RightShare) -> Numbers:
    """The share of right votes over draws of `size` candidates, (seeds, questions). All rules and seeds use the same
    draws, so that outcomes are paired."""
    return np.array([best_of_n.accuracies(questions, size, rule) for questions in judged], dtype=float)


def votes_taken(judged: Seeds) -> dict[int, dict[str, Numbers]]:
    """Outcomes of every vote at every N."""
    return {size: {name: outcomes(judged, size, rule) for name, rule in VOTES.items()} for size in sizes(judged)}


def wrf(alpha: float) -> RightShare:
    """The WRF vote with reward weight `alpha`."""
    return partial(right_share, "wrf", terms=VoteTerms(alpha=alpha))


def bands(judged: Sequence[JudgedCandidates]) -> dict[str, list[int]]:
    """Indices of the questions, grouped by the share of their candidates that are right."""
    shares = [sum(candidates.correct) / len(candidates.correct) for candidates in judged]
    edges = ((0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01))
    return {
        f"{low:.0%}–{min(high, 1):.0%}": [k for k, share in enumerate(shares) if low <= share < high]
        for low, high in edges
    }


def ties(judged: Seeds, size: int) -> dict[str, Numbers]:
    """The share of WRF votes that are tied (`tied`), and by tie-break the share of right votes, each (seeds,
    questions)."""
    broken = {name: outcomes(judged, size, partial(_broken, name)) for name in TIE_BREAKS}
    return {"tied": outcomes(judged, size, _is_tied), **broken}


def log_odds(prior: float) -> RightShare:
    """A vote for the class with the highest sum, over its candidates, of `prior` plus the log-odds of the reward.

    This is the most likely class if candidates are right or wrong independently of each other, rewards are calibrated,
    and `prior` is the evidence (in log-odds) that one more occurrence of an answer adds.
    """
    return partial(_log_odds, prior)


def halves(judged: Seeds) -> tuple[Seeds, Seeds]:
    """Splits the questions alternately: one half to choose on, the other to test on."""
    chosen_on, tried_on = ([list(questions[start::2]) for questions in judged] for start in (0, 1))
    return chosen_on, tried_on


def best(judged: Seeds, rules: Mapping[float, RightShare]) -> float:
    """The key of the rule that is right most often, on average over N ≥ 4; of equal ones the first."""
    tried = [size for size in sizes(judged) if size >= 4]
    return max(rules, key=lambda value: sum(float(outcomes(judged, size, rules[value]).sum()) for size in tried))


def _drawn(judged: JudgedCandidates, picks: Sequence[int]) -> tuple[list[int | None], list[float]]:
    """Classes and rewards of these candidates; candidates that could not be scored get the reward 0."""
    return [judged.classes[k] for k in picks], [judged.rewards[k] or 0.0 for k in picks]


def _log_odds(prior: float, judged: JudgedCandidates, picks: Sequence[int]) -> float:
    sums: dict[int, float] = {}
    right: dict[int, bool] = {}
    for k in picks:
        name = judged.classes[k]
        if name is not None:
            reward = min(max(judged.rewards[k] or 0.0, CLIP), 1 - CLIP)
            sums[name] = sums.get(name, 0.0) + prior + math.log(reward / (1 - reward))
            right[name] = judged.correct[k]
    if not sums:
        return 0.0
    top = max(sums.values())
    tied = [right[name] for name, total in sums.items() if top - total <= TIE]
    return sum(tied) / len(tied)


def _is_tied(judged: JudgedCandidates, picks: Sequence[int]) -> bool:
    classes, rewards = _drawn(judged, picks)
    return any(name is not None for name in classes) and bool(votes.decide("wrf", classes, rewards).tied)


def _broken(tie_break: str, judged: JudgedCandidates, picks: Sequence[int]) -> float:
    """How right WRF is, in [0, 1], if ties are broken by `tie_break`; if answers are still tied, the share of right
    ones among them. 0 if no candidate has an answer."""
    classes, rewards = _drawn(judged, picks)
    if all(name is None for name in classes):
        return 0.0
    result = votes.decide("wrf", classes, rewards)
    tied = [result.classes[k] for k in result.tied] or [result.classes[0]]
    keys: dict[str, Callable[[AnswerClass], tuple[float, ...]]] = {
        "frequency": lambda answer_class: (answer_class.count, answer_class.mean_reward or 0.0),
        "mean reward": lambda answer_class: (answer_class.mean_reward or 0.0, answer_class.count),
        "first appearance": lambda answer_class: (-answer_class.members[0],),
    }
    key = keys[tie_break]
    top = max(map(key, tied))
    left = [judged.correct[picks[answer_class.members[0]]] for answer_class in tied if key(answer_class) == top]
    return sum(left) / len(left)
