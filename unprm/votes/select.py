"""The answer that a language model prefers (GenSelect: Toshniwal et al., 2025, arXiv 2507.17797)."""

from typing import Literal

from pydantic import Field

from unprm.types import Probability
from unprm.votes.vote import Tally, Terms, Vote


class SelectTerms(Terms):
    """Settings of `select`."""

    repeats: int = Field(
        default=4,
        ge=1,
        le=16,
        description="Calls, each with the answers in another order; two answers have two orders.",
    )
    pairwise: bool = Field(
        default=False, description="Compare two answers at a time, each pair in both orders: a knockout by votes."
    )
    select_if: Literal["always", "unsettled"] | None = Field(
        default=None,
        description="When the model is asked: `always` (the default), or `unsettled` (the gateway's default): where "
        "the majority's lead is below `settled_margin`, or with `risk` its answer is not accepted.",
    )
    settled_margin: Probability = Field(
        default=0.5,
        description="Lead over the next answer, as a share of the candidates, from which a majority is settled.",
    )


def _by_preference(tally: Tally) -> list[float | None]:
    """The preference for each answer; None for one that was not compared."""
    return [max(values, default=None) for values in tally.grouped]


VOTE = Vote(
    name="select",
    order=8,
    signal="preference",
    decided_by="comparison",
    score=_by_preference,
    terms=SelectTerms,
    grid={"repeats": (4, 1, 8)},
    title="Comparison (select)",
    summary="The answer that a language model prefers among one solution of each",
    description="The model at `--judge-url`, or the gateway's upstream, is shown one solution for each of the eight "
    "most frequent answers; `score` is its preference. Where it can't be asked the majority decides, and `selection` "
    "says why.",
    score_name="preference",
)
