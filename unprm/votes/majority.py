"""Majority voting, or self-consistency (Wang et al., 2023, arXiv 2203.11171)."""

from unprm.votes.vote import Tally, Vote, by_frequency, two_highest


def _settled(tally: Tally, left: int) -> bool:
    first, second = two_highest(tally.counts)
    return first > second + left


VOTE = Vote(
    name="majority",
    order=1,
    signal="none",
    decided_by="majority",
    score=by_frequency,
    frequency_decides=lambda tally: True,
    settled=_settled,
    title="Most frequent answer",
    summary="The answer with the most solutions",
    description="If several have as many, the first. Needs no rewards and no problem: the model is not run.",
    score_name="number of candidates",
)
