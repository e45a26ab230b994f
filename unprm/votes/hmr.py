"""The hybrid majority reward vote, Algorithm 2 of the paper."""

from unprm.votes.vote import Tally, Vote, by_highest, two_highest


def _has_half(tally: Tally) -> bool:
    """Whether one group, and no other, has half of all candidates or more."""
    first, second = two_highest(tally.counts)
    return 2 * first >= tally.total and first > second


VOTE = Vote(
    name="hmr",
    order=3,
    signal="reward",
    decided_by="reward",
    score=by_highest,
    frequency_decides=_has_half,
    settled=lambda tally, left: 2 * max(tally.counts) > tally.total + left,
    title="Hybrid majority reward",
    summary="The majority if it alone has half of the candidates or more, else the answer with the highest reward",
    description="The one answer that at least half of all solutions state wins without scoring; if there is none, or "
    "there are two, the model is run.",
    score_name="highest reward",
    why_frequency="that is at least half: the majority decides, whatever the rewards",
    why_reward="No answer alone has half of the candidates, so the highest reward decides",
)
