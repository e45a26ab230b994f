"""Best-of-N by the reward (Cobbe et al., 2021, arXiv 2110.14168)."""

from unprm.votes.vote import Vote, by_highest

VOTE = Vote(
    name="prm",
    order=2,
    signal="reward",
    decided_by="reward",
    score=by_highest,
    title="Best of N: the highest reward",
    summary="The answer of the solution with the highest reward",
    description="Best-of-N by the process reward model.",
    score_name="highest reward",
)
