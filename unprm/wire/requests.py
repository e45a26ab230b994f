"""Requests: candidate solutions, and how they are read, scored and voted on."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from unprm import steps as step_text
from unprm.errors import InvalidRequest
from unprm.types import Aggregate, Probability, Solution, Split
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.votes.vote import Terms, Vote
from unprm.votes.wrf import WrfTerms
from unprm.wire.types import (
    MAX_SOLUTIONS,
    ExtractionField,
    FreeText,
    ModelName,
    OnInvalid,
    SplitField,
    Text,
    WireModel,
)

# stop at a list's first error: one per element of a hostile list would take a minute and gigabytes
_Steps = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
_StepScores = Annotated[list[Probability], Field(min_length=1, fail_fast=True)]
Confidence = Annotated[float, Field(ge=0.0, le=1e100, allow_inf_nan=False, strict=True)]
"""Bounded so that their sums are numbers."""
LEAST_LOGPROB = -1e5
"""Far below the natural-log probabilities that models tell."""
_LogProb = Annotated[float, Field(le=0.0, ge=LEAST_LOGPROB, allow_inf_nan=False)]
LogProbs = Annotated[list[_LogProb], Field(min_length=1, fail_fast=True)]

_PROBLEM = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
_RIGHT = "Step 1: 23 + 45 = 68. The answer is \\boxed{68}."
_WRONG = "Step 1: 23 + 45 = 69. The answer is \\boxed{69}."


class SolutionIn(WireModel):
    """A candidate solution: free text that is split into steps, or its steps; exactly one of the two."""

    id: str | None = Field(None, description="Returned with this solution's result.")
    text: FreeText | None = Field(None, description="Free text, split into steps as the request's `split` says.")
    steps: _Steps | None = None
    answer: str | None = Field(None, description="Overrides the answer found in the text.")
    step_scores: _StepScores | None = Field(None, description="One score per step, used instead of the model's.")
    confidence: Confidence | None = Field(
        None, description="How sure the model that wrote it was; for the votes by confidence."
    )
    token_logprobs: LogProbs | None = Field(
        None, description="Log-probabilities of its tokens; without `confidence` it is computed from them."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.text is None) == (self.steps is None):
            raise ValueError("exactly one of text and steps must be given")
        if self.steps is not None and self.step_scores is not None and len(self.steps) != len(self.step_scores):
            raise ValueError(_mismatch(len(self.step_scores), len(self.steps)))
        return self

    @property
    def characters(self) -> int:
        """Length of the text, or of all steps."""
        return len(self.text or "") + sum(map(len, self.steps or ()))

    def whole(self) -> str:
        """The text as it was sent, or the joined steps."""
        return self.text if self.text is not None else step_text.join(self.steps or ())

    def candidate(self, split: Split, index: int) -> Solution:
        """The solution, split into steps. Raises `InvalidRequest` if they are not as many as its step scores."""
        steps = tuple(self.steps or step_text.split(self.text or "", split))
        scores = None if self.step_scores is None else tuple(self.step_scores)
        if scores is not None and len(steps) != len(scores):
            raise InvalidRequest(f"solution {index}: {_mismatch(len(scores), len(steps))}", f"/solutions/{index}")
        return Solution(steps, self.answer, self.id, scores, confidence_of(self.confidence, self.token_logprobs))


def confidence_of(sent: float | None, token_logprobs: Sequence[float] | None) -> float | None:
    """A candidate's confidence: the one sent, ≥ 0; else its probability per token, in [0, 1]: the geometric mean over
    its tokens, at least one, of which natural-log probabilities (≤ 0) are given; None with neither."""
    if sent is not None or token_logprobs is None:
        return sent
    return math.exp(math.fsum(token_logprobs) / len(token_logprobs))


def _mismatch(scores: int, steps: int) -> str:
    return f"{scores} step_scores were sent for {steps} steps"


def _form(solution: object) -> str:
    return "text" if isinstance(solution, str) else "steps" if isinstance(solution, (list, tuple)) else "object"


# discriminated by form, so that an error refers to the form that was sent and not to all three
AnySolution = Annotated[
    Annotated[FreeText, Tag("text")] | Annotated[_Steps, Tag("steps")] | Annotated[SolutionIn, Tag("object")],
    Discriminator(_form),
]


def _as_object(solution: str | list[str] | SolutionIn) -> SolutionIn:
    if isinstance(solution, SolutionIn):
        return solution
    text, steps = (solution, None) if isinstance(solution, str) else (None, solution)
    return SolutionIn.model_construct(text=text, steps=steps)


class Candidates(WireModel):
    """Candidate solutions of one problem, and how they are read and scored."""

    model_config = ConfigDict(json_schema_extra={"example": {"problem": _PROBLEM, "solutions": [[_RIGHT], _WRONG]}})

    problem: Text | None = Field(None, description="Required if the model has to score.")
    solutions: list[AnySolution] = Field(min_length=1, max_length=MAX_SOLUTIONS)
    split: SplitField = "auto"
    extraction: ExtractionField = "auto"
    aggregate: Aggregate = "min"
    threshold: Probability | None = Field(
        None,
        description="A step that scores below it, a number in [0, 1], is an error. By default 0.5; for scores of one "
        "model with a recorded calibration (`/model`), the threshold that was recorded with it.",
    )
    on_invalid: OnInvalid = Field(
        "unscored",
        description="What becomes of a candidate that can't be scored: it stays without a reward, or the request is "
        "refused.",
    )
    log_odds: bool = Field(False, description="Also return each score's log-odds; the raw value of implicit rewards.")
    model: ModelName | Annotated[list[ModelName], Field(min_length=1, max_length=16)] | None = Field(
        None, description="A served model, by default the first; for several, the mean of their calibrated step scores."
    )

    @property
    def scored(self) -> bool:
        """Whether every solution comes with step scores, so that no model is needed."""
        return all(solution.step_scores is not None for solution in self._objects)

    @property
    def lengths(self) -> list[int]:
        """Characters of problem plus solution, for each solution without step scores, which a model has to read."""
        before = len(self.problem or "")
        return [before + solution.characters for solution in self._objects if solution.step_scores is None]

    def candidates(self) -> list[Solution]:
        """The solutions, split into steps; `answer` is the caller's, not extracted yet.

        Raises `InvalidRequest` for a text whose number of steps differs from its number of step scores.
        """
        return [solution.candidate(self.split, index) for index, solution in enumerate(self._objects)]

    def texts(self) -> list[str]:
        """Each solution as one text to extract its answer from: the text as sent, or the joined steps."""
        return [solution.whole() for solution in self._objects]

    @property
    def terms(self) -> VoteTerms:
        """The settings of the vote, those of other votes as they are by default."""
        return VoteTerms.model_construct(
            **{name: getattr(self, name) for name in VoteTerms.model_fields if name in type(self).model_fields}
        )

    @property
    def _objects(self) -> list[SolutionIn]:
        return [_as_object(solution) for solution in self.solutions]


class VoteRequest(Candidates):
    """Candidates for a vote by answers, scored only if the answers don't decide it."""


class ScoreRequest(Candidates):
    """Candidates to be scored step by step."""

    @model_validator(mode="after")
    def _check_problem(self) -> Self:
        if self.problem is None and not self.scored:
            raise ValueError("problem is required unless every solution brings step_scores")
        return self


class RewardVoteRequest(ScoreRequest):
    """Candidates for a vote by rewards."""


class DefaultVoteRequest(VoteRequest, WrfTerms):
    """Candidates for the server's default vote; the settings of `wrf` are for where it is that one."""


class CompareRequest(ScoreRequest, VoteTerms):
    """Candidates for all votes."""


class PreviewRequest(WireModel):
    """One solution whose exact model input is requested."""

    model_config = ConfigDict(json_schema_extra={"example": {"problem": _PROBLEM, "solution": _RIGHT}})

    problem: Text
    solution: AnySolution
    split: SplitField = "auto"
    model: ModelName | None = Field(None, description="A served model, by default the first.")

    def candidate(self) -> Solution:
        """The solution, split into steps; raises `InvalidRequest` as `ScoreRequest.candidates` does."""
        return _as_object(self.solution).candidate(self.split, 0)


def _request_of(vote: Vote) -> type[Candidates]:
    """`VoteRequest`, or `RewardVoteRequest` for a vote that always needs rewards; with the vote's settings, if any."""
    base = RewardVoteRequest if vote.needs_problem else VoteRequest
    if vote.terms is Terms:
        return base
    bases: Any = (base, vote.terms)
    name = f"{vote.name.title().replace('_', '')}Request"
    request: type[Candidates] = create_model(name, __base__=bases, __doc__=f"Candidates for the vote `{vote.name}`.")
    return request


VOTE_REQUESTS: dict[Strategy, type[Candidates]] = {name: _request_of(vote) for name, vote in VOTES.items()}
"""The request model of each vote."""
