"""The weighted reward-frequency vote, Algorithm 3 of the paper."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from unprm.types import Probability
from unprm.votes.vote import Tally, Terms, Vote, mean

Normalization = Literal["minmax", "share"]
"""How rewards and frequencies are made comparable: each min-max over the answers, or mean reward and share of N."""


class WrfTerms(Terms):
    """Settings of `wrf`."""

    alpha: Probability = Field(default=0.5, description="Weight of the reward; 1 - alpha weighs the frequency.")
    normalization: Normalization = Field(
        default="minmax",
        description="How reward and frequency are made comparable: each min-max over the answers (the paper), or "
        "`share`: mean reward and share of all candidates as they are.",
    )


def _by_reward_and_frequency(tally: Tally) -> list[float | None]:
    minmax, alpha = tally.terms.normalization == "minmax", tally.terms.alpha
    frequencies = _min_max(tally.counts) if minmax else [count / tally.total for count in tally.counts]
    for group, frequency in zip(tally.groups, frequencies, strict=True):
        group.normalized_frequency = frequency
    if tally.values is None:  # a single answer that was not scored: min-max makes its values 1 whatever they are
        return [1.0 if minmax else None]
    rewards = [mean(values) for values in tally.grouped]
    rewards = _min_max(rewards) if minmax else rewards
    for group, reward in zip(tally.groups, rewards, strict=True):
        group.normalized_reward = reward
    return [alpha * reward + (1 - alpha) * frequency for reward, frequency in zip(rewards, frequencies, strict=True)]


def _min_max(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


VOTE = Vote(
    name="wrf",
    order=4,
    signal="reward",
    decided_by="combined",
    score=_by_reward_and_frequency,
    terms=WrfTerms,
    grid={"alpha": (0.5, 0.1, 0.3, 0.7, 0.9), "normalization": ("minmax", "share")},
    title="Weighted reward-frequency",
    summary="The answer with the highest weighted sum of mean reward and frequency",
    description="Per answer, mean reward and frequency are made comparable as `normalization` says; the highest "
    "`alpha * reward + (1 - alpha) * frequency` wins.",
    score_name="combined",
)
