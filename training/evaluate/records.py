"""The records of evaluations: one JSON object per line of a file, as those in `training.schema`."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import AliasChoices, AliasPath, Field, StrictBool

from unprm import steps
from unprm.types import Aggregate
from unprm.votes.registry import VOTES, Strategy

from ..schema import Scores

Confidences = Annotated[
    tuple[float | None, ...] | None,
    Field(
        exclude_if=lambda confidences: confidences is None,
        # once they were by vote
        validation_alias=AliasChoices(AliasPath("confidences", "cisc"), "confidences"),
    ),
]
"""The confidence of each candidate, None for one without; None as a whole, and not written, if none has one."""


@dataclass(frozen=True, slots=True)
class SolutionScores:
    """The step scores of a solution of a benchmark (`unprm evaluate processbench` or `prmbench`)."""

    id: str
    scores: Scores


@dataclass(frozen=True, slots=True)
class JudgedCandidates:
    """A question's candidates as votes use them (`unprm evaluate best-of-n`): classes of equal answers (None: no
    answer), whether each is right, and rewards (None: not scored, for example too long for the PRM).

    `scores`: the step scores from which the rewards are computed, None or empty for a candidate that was not scored;
    None as a whole if rewards were given as numbers. `confidences`: for the votes by confidence, if there are any.
    `stated`: whether the answers are stated ones, and not, say, JSON.
    """

    id: str
    classes: tuple[int | None, ...]
    correct: tuple[StrictBool, ...]
    rewards: tuple[float | None, ...]
    scores: tuple[Scores, ...] | None = None
    confidences: Confidences = None
    stated: Annotated[StrictBool, Field(exclude_if=bool)] = True

    def values(self, strategy: Strategy) -> tuple[float | None, ...]:
        """The rewards or confidences that the vote takes; for a vote by confidence there must be some."""
        if VOTES[strategy].signal != "confidence":
            return self.rewards
        assert self.confidences is not None
        return self.confidences

    def rewarded(self, aggregate: Aggregate) -> "JudgedCandidates":
        """The same candidates with rewards aggregated from the step scores, which must not be None."""
        assert self.scores is not None
        return replace(self, rewards=tuple(reward_of(scores, aggregate) for scores in self.scores))


def reward_of(scores: Scores, aggregate: Aggregate = "min") -> float | None:
    return steps.reward(scores, aggregate) if scores else None
