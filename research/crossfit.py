"""Votes whose settings are chosen on one half of the questions and judged on the other.

On the questions that it was chosen with, a setting looks better than it is. Here each half is judged with what is best
on the other half (two-fold cross-fitting): every question counts once, and none has a say in the settings that it is
judged with. One way to cut the questions into halves moves a vote's accuracy by a point; so it is the mean over
`SPLITS` ways. Intervals are over the questions, given what was chosen.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from training.evaluate.best_of_n import (
    AGGREGATES,
    NO_REWARD,
    RightShare,
    accuracies,
    first_reward,
    outcomes,
    right_share,
    takeable,
    uses_rewards,
)
from training.evaluate.judging import JudgedCandidates
from training.evaluate.metrics import Estimate, Numbers, Share, compare, in_markdown
from unprm.errors import RecordInvalid
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import VOTES, Strategy, VoteTerms

SPLITS = 100
"""Ways to cut the questions into halves."""
SHOWN = 2
"""Settings of a vote that the table names."""


class HeldOut(NamedTuple):
    """`outcomes`, (questions,): how right a vote is with the setting that is best on the half without the question, the
    mean over all splits. `best`: how many of the halves each setting (its index) is best on."""

    outcomes: Numbers
    best: Counter[int]


@dataclass(frozen=True, slots=True)
class CrossFit:
    """How often a vote is right: `default`, with its default settings and the first reward; `held_out`, on each half
    with the settings that are best on the other. `best`: settings as text, and on what share of the halves they are
    best; the most frequent first; empty for a vote with nothing to choose.

    `against_majority` and `against_default`: `held_out` minus majority, and minus the default vote with its default
    settings, in points with p-values corrected over all votes on these questions (Holm); empty against itself.
    """

    default: Share
    held_out: Share
    best: dict[str, float]
    against_majority: str
    against_default: str


def cross_fit(tried: Numbers, splits: npt.NDArray[np.bool_]) -> HeldOut:
    """Cross-fits one vote. `tried`, (settings, questions): how right it is; `splits`, (splits, questions): whether a
    question is in the first half. Of settings that are equally right on a half, the first in order is best."""
    outcomes, best = np.zeros(tried.shape[1]), Counter[int]()
    for half in (*splits, *~splits):
        # rounded, so that the order of a sum breaks no tie
        chosen = int(np.argmax(tried[:, half].mean(axis=1).round(9)))
        outcomes += np.where(half, 0.0, tried[chosen])
        best[chosen] += 1
    return HeldOut(outcomes / len(splits), best)


def measure(judged: Sequence[JudgedCandidates], size: int | None = None) -> dict[Strategy, CrossFit]:
    """All votes that can be taken on these questions, two or more: among `size` candidates, drawn as in
    `best_of_n.accuracies`, or among all. The splits are drawn with a fixed seed.

    Raises `RecordInvalid` if a question has fewer than `size` candidates.
    """
    fewest = min(judged, key=lambda candidates: len(candidates.classes))
    if size is not None and len(fewest.classes) < size:
        raise RecordInvalid(fewest.id, 0, f"it has {len(fewest.classes)} candidates, votes among {size} were asked for")
    right = outcomes if size is None else partial(_among, size)
    rng = np.random.default_rng(0)
    splits = np.array([rng.permutation(len(judged)) < len(judged) // 2 for _ in range(SPLITS)])
    tried = {vote: dict(_tried(vote, judged, right)) for vote in takeable(judged)}
    held_out = {vote: cross_fit(np.array([*results.values()]), splits) for vote, results in tried.items()}
    default = {vote: next(iter(results.values())) for vote, results in tried.items()}

    def against(other: Strategy) -> dict[Strategy, str]:
        differences = {
            vote: Estimate.mean(fitted.outcomes - default[other])
            for vote, fitted in held_out.items()
            if vote != other or len(tried[vote]) > 1
        }
        return {vote: fitted.figures for vote, fitted in compare(differences).items()}

    majority, by_default = against("majority"), against(DEFAULT_STRATEGY)
    return {
        vote: CrossFit(
            Share.of(default[vote].tolist()),
            Share.of(fitted.outcomes.tolist()),
            _shares(list(tried[vote]), fitted.best),
            majority.get(vote, ""),
            by_default.get(vote, ""),
        )
        for vote, fitted in held_out.items()
    }


def _shares(settings: Sequence[str], best: Counter[int]) -> dict[str, float]:
    if len(settings) == 1:
        return {}
    return {settings[index]: count / best.total() for index, count in best.most_common()}


def _among(size: int, judged: Sequence[JudgedCandidates], rule: RightShare) -> Numbers:
    return np.array(accuracies(judged, size, rule))


def _tried(
    vote: Strategy,
    judged: Sequence[JudgedCandidates],
    right: Callable[[Sequence[JudgedCandidates], RightShare], Numbers],
) -> Iterator[tuple[str, Numbers]]:
    """The vote's settings as text, and how right it is with them, (questions,); the defaults first. The values of its
    `grid` are tried all together, for a vote that uses rewards with all aggregates of step scores, too."""
    rewards: dict[str, Sequence[JudgedCandidates]] = {NO_REWARD: judged}
    if uses_rewards(vote) and any(candidates.scores is None for candidates in judged):
        rewards = {first_reward(step_scores=False): judged}
    elif uses_rewards(vote):
        rewards = {name: [candidates.rewarded(name) for candidates in judged] for name in AGGREGATES}
    grid = VOTES[vote].grid
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        rule = partial(right_share, vote, terms=VoteTerms.model_validate(settings))
        for reward, rewarded in rewards.items():
            named = [f"{name} {value}" for name, value in settings.items()]
            yield ", ".join([reward, *named] if reward != NO_REWARD else named), right(rewarded, rule)


def markdown(measured: Mapping[str, Mapping[Strategy, CrossFit]]) -> str:
    columns = [
        "vote", "pool", "by default", "chosen on the other half", "against majority, points",
        f"against {DEFAULT_STRATEGY} by default, points", "most often best",
    ]  # fmt: skip
    rows = [
        [vote, pool, fit.default.in_percent, fit.held_out.in_percent, fit.against_majority, fit.against_default,
         "; ".join(f"{settings} ({share:.0%})" for settings, share in list(fit.best.items())[:SHOWN])]
        for vote in VOTES
        for pool, by_vote in measured.items()
        if (fit := by_vote.get(vote))
    ]  # fmt: skip
    return in_markdown(columns, rows)
