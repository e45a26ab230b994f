"""The majority weighted by rewards (Li et al., 2023, arXiv 2206.02336)."""

from unprm.votes.vote import TIE, Tally, Vote, by_sum, two_highest


def _settled(tally: Tally, left: int) -> bool:
    first, second = two_highest([score or 0.0 for score in by_sum(tally)])
    return first > second + left + TIE


VOTE = Vote(
    name="weighted",
    order=5,
    signal="reward",
    decided_by="combined",
    score=by_sum,
    settled=_settled,
    title="Sum of rewards",
    summary="The answer with the highest sum of rewards",
    description="Weighted majority voting.",
    score_name="sum of rewards",
)
