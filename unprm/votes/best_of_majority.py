"""Best-of-Majority (Di et al., 2025, arXiv 2510.03199)."""

from pydantic import Field

from unprm.types import Probability
from unprm.votes.vote import Tally, Terms, Vote, by_highest


class BestOfMajorityTerms(Terms):
    """Settings of `best_of_majority`."""

    min_share: Probability = Field(
        default=0.2, description="Answers given by a smaller share of the candidates are dropped."
    )


def _frequent(tally: Tally) -> list[bool]:
    """Whether each group has `min_share` of all candidates; if none has it, whether no other is more frequent."""
    fewest = min(tally.terms.min_share * tally.total - 1e-9, max(tally.counts))
    return [count >= fewest for count in tally.counts]


def _by_frequent_reward(tally: Tally) -> list[float | None]:
    return [score if frequent else None for score, frequent in zip(by_highest(tally), _frequent(tally), strict=True)]


VOTE = Vote(
    name="best_of_majority",
    order=6,
    signal="reward",
    decided_by="reward",
    score=_by_frequent_reward,
    frequency_decides=lambda tally: sum(_frequent(tally)) == 1,
    terms=BestOfMajorityTerms,
    grid={"min_share": (0.2, 0.05, 0.1, 0.3, 0.4)},
    title="Best frequent answer",
    summary="The answer with the highest reward among the frequent answers",
    description="Answers of less than `min_share` of all candidates are dropped (Di et al., 2025). If a single one is "
    "left, it wins without scoring; if none is, the most frequent stay.",
    score_name="highest reward",
    why_reward="Among the frequent answers the highest reward decides",
)
