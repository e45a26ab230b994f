"""Confidence-informed self-consistency (Taubenfeld et al., 2025, arXiv 2502.06233)."""

import math

from pydantic import Field

from unprm.types import Positive
from unprm.votes.vote import Tally, Terms, Values, Vote, by_sum


class CiscTerms(Terms):
    """Settings of `cisc`."""

    temperature: Positive = Field(
        default=0.5,
        description="Softmax temperature over the candidates: near 0 only the most confident counts; a large value "
        "weighs all equally.",
    )


def _by_softmax(tally: Tally) -> list[float | None]:
    """The sum of each group's shares of the softmax over the confidences of all candidates."""
    weights = None if tally.values is None else _softmax(tally.values, tally.terms.temperature)
    return by_sum(tally._replace(values=weights))


def _softmax(values: Values, temperature: float) -> Values:
    highest = max(value for value in values if value is not None)
    scaled = [None if value is None else math.exp((value - highest) / temperature) for value in values]
    total = math.fsum(weight for weight in scaled if weight is not None)
    return [None if weight is None else weight / total for weight in scaled]


VOTE = Vote(
    name="cisc",
    order=7,
    signal="confidence",
    decided_by="confidence",
    score=_by_softmax,
    terms=CiscTerms,
    grid={"temperature": (0.5, 0.01, 0.05, 0.1, 0.2, 1.0)},
    title="Confidence (CISC)",
    summary="The answer with the highest sum of softmax weights of confidences",
    description="Confidence-informed self-consistency (Taubenfeld et al., 2025), without a PRM: a candidate's "
    "confidence is the one sent, or the probability per token by `token_logprobs`.",
    score_name="sum of weights",
)
