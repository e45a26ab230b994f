"""A vote that tests add to the others: this file is all there is of it."""

from pydantic import Field

from unprm.types import Probability
from unprm.votes.vote import Tally, Terms, Vote


class PassingTerms(Terms):
    """Settings of `passing`."""

    pass_mark: Probability = Field(default=0.5, description="Solutions with a lower reward don't count.")


def _by_passing(tally: Tally) -> list[float | None]:
    return [float(sum(reward >= tally.terms.pass_mark for reward in rewards)) for rewards in tally.grouped]


VOTE = Vote(
    name="passing",
    signal="reward",
    decided_by="combined",
    score=_by_passing,
    terms=PassingTerms,
    grid={"pass_mark": (0.5, 0.8)},
    title="Passing",
    summary="The answer with the most solutions that pass",
    description="A solution passes with a reward of `pass_mark` or more.",
    score_name="number of passing solutions",
)
