"""Settings of the votes: every one is written here once, for requests, commands and the votes themselves."""

from typing import Annotated

from pydantic import ConfigDict, Field

from unprm.types import ConfidenceMeasure
from unprm.wire.types import NormalizationField, Probability, WireModel

Inside = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False, strict=True)]


class WrfTerms(WireModel):
    """Settings of `wrf`."""

    alpha: Probability = Field(default=0.5, description="Weight of the reward; 1 - alpha weighs the frequency.")
    normalization: NormalizationField = "minmax"


class LogOddsTerms(WireModel):
    """Settings of `logodds`."""

    accuracy: Inside = Field(default=0.5, description="How often the model that wrote the candidates is right.")
    scale: Positive = Field(
        default=1.0, description="Factor of a reward's log-odds: below 1 for rewards that are too sure."
    )


class BestOfMajorityTerms(WireModel):
    """Settings of `best_of_majority`."""

    min_share: Probability = Field(default=0.2, description="Answers of a smaller share of all candidates are dropped.")


class SoftTerms(WireModel):
    """Settings of `soft` and `cisc`."""

    temperature: Positive = Field(
        default=0.5,
        description="Of the softmax over the candidates: near 0 the highest alone counts, far above all are equal.",
    )


class DeepConfTerms(WireModel):
    """Settings of `deepconf`."""

    top_share: Inside | Annotated[float, Field(ge=1.0, le=1.0, strict=True)] = Field(
        default=0.9, description="Share of the candidates that vote: those with the highest confidence."
    )
    measure: ConfidenceMeasure = Field(
        default="lowest",
        description="Confidence of a candidate from its tokens' `top_logprobs`: of its `lowest` window, of the lowest "
        "tenth of its windows (`bottom`), of its `tail`, or the `mean` of all tokens.",
    )
    window: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = Field(
        default=2048, description="Tokens of a window; a shorter candidate is one window."
    )


class SelfCertaintyTerms(WireModel):
    """Settings of `self_certainty`."""

    power: Annotated[Positive, Field(le=100.0)] = Field(
        default=1.0, description="Of the Borda count: the k-th of n has (n - k + 1) ** power votes."
    )


class VoteTerms(WrfTerms, LogOddsTerms, BestOfMajorityTerms, SoftTerms, DeepConfTerms, SelfCertaintyTerms):
    """Settings of all votes; each vote reads its own."""

    model_config = ConfigDict(frozen=True)
