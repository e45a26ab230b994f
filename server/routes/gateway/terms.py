"""How an answer is elected, and where its candidates are sampled."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from unprm.votes.registry import VOTES, Strategy

from .replies import SampledCompletions
from .report import SamplingCost
from .schema import ChatRequest, Election
from .upstream import Upstream

_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""


@dataclass(slots=True, eq=False)
class CandidateSource:
    """An upstream that candidates are sampled from, at most `budget` of them; what came of it, without the completions.
    `requested`: whether any was; `failed`: candidates that did not come; `failing`: consecutive rounds without any."""

    name: str
    upstream: Upstream
    budget: int
    requested: bool = False
    received: int = 0
    failed: int = 0
    failing: int = 0
    sampled: SampledCompletions = field(default_factory=SampledCompletions)

    @property
    def left(self) -> int:
        return self.budget - self.received - self.failed

    @property
    def given_up(self) -> bool:
        return self.failing >= _FAILED

    @property
    def goes_on(self) -> bool:
        """Whether more is worth requesting."""
        return self.left > 0 and not self.given_up

    def give_up(self) -> None:
        self.failing = _FAILED

    @property
    def cost(self) -> SamplingCost:
        sampled = self.sampled
        return SamplingCost.model_validate({"model": sampled.model, "sampled": self.received, **sampled.token_counts})


@dataclass(frozen=True, slots=True)
class ElectionTerms:
    """What the request says, and what the server decides where it says nothing.

    `question`: what is asked last; `problem`: what a PRM reads, None for a vote without rewards; `why_majority`: why a
    vote that nobody named is by majority. `by_logprobs`: rewards are made of the log-probabilities of tokens.
    `several`: whether the server has several upstreams.
    """

    request: ChatRequest
    question: str
    problem: str | None
    strategy: Strategy
    sources: Sequence[CandidateSource]
    stable: float
    why_majority: str | None = None
    by_logprobs: bool = False
    several: bool = False

    @property
    def settings(self) -> Election:
        return self.request.unprm

    @property
    def by_confidence(self) -> bool:
        return VOTES[self.strategy].signal == "confidence"
