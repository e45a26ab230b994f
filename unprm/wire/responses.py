"""Responses: scores, votes, previews and errors."""

from typing import Annotated, Literal, Self

from pydantic import Field

from unprm.errors import Unscorable
from unprm.types import Aggregate, DecidedBy
from unprm.votes.registry import Strategy
from unprm.wire.types import WireModel

LONGEST_COMPARED = 1000
"""Most characters of an answer in the outcomes of `CompareResponse`, which would repeat it for every vote, and in what
the gateway reports, where it may be the arguments of tool calls."""


def _is_none(value: object) -> bool:
    return value is None


# missing in a response that has none
_StepLogOdds = Annotated[list[float] | None, Field(exclude_if=_is_none)]
_UsedThreshold = Annotated[
    float | None,
    Field(
        exclude_if=_is_none,
        description="The recorded threshold that `first_error` was found by; missing where there was none.",
    ),
]


class IntervalOut(WireModel):
    """Around a step's score: the 5 % and the 95 % quantile of the distribution whose mean it is, widened to the score
    where that lies outside."""

    low: float
    high: float


_StepIntervals = Annotated[
    list[IntervalOut] | None,
    Field(
        exclude_if=_is_none,
        description="One for each of `step_scores`; missing unless a single model computed them, which was trained by "
        "`--loss beta-binomial`.",
    ),
]


class CutOut(WireModel):
    """Characters of a message that is not read whole, and how many of them are read."""

    characters: int
    kept: int


_MessageScores = Annotated[
    dict[str, float] | None,
    Field(exclude_if=_is_none, description="Of a trajectory: the scores by the index of the assistant message."),
]
_CutMessages = Annotated[
    dict[str, CutOut] | None,
    Field(exclude_if=_is_none, description="Of a trajectory: the messages that were cut, by index."),
]


class UsageOut(WireModel):
    """Tokens of a request: in total, actually run by the model, and reused from earlier computation. Its times, in
    milliseconds: `tokenization_ms` from texts to token ids, `queue_ms` until the first batch, and `scoring_ms` from
    there to the last score; added up over several models, and over the rounds of a chat completion."""

    tokens: int
    computed_tokens: int
    cached_tokens: int
    tokenization_ms: float = 0.0
    queue_ms: float = 0.0
    scoring_ms: float = 0.0


class Unscored(WireModel):
    """Why a candidate has no reward."""

    code: Literal["blank", "solution_too_long", "too_many_steps", "no_verdict"]
    detail: str

    @classmethod
    def of(cls, error: Unscorable) -> Self:
        """From the error."""
        return cls.model_validate({"code": error.code, "detail": str(error)})


class Demonstration(WireModel):
    """What to know of scores by a demonstration model, in a sentence; `in_domain`: whether the problem is one of those
    that it knows. Elsewhere its scores mean nothing."""

    in_domain: bool
    detail: str


DemonstrationField = Annotated[
    Demonstration | None,
    Field(description="null unless scores of a demonstration model were used."),
]


class ScoredSolution(WireModel):
    """Scores of one solution, null for one that can't be scored; `first_error` is the index of the first step below the
    threshold."""

    id: str | None
    steps: list[str]
    step_scores: list[float] | None
    reward: float | None
    first_error: int | None
    answer: str | None
    unscored: Unscored | None
    step_log_odds: _StepLogOdds = None
    step_intervals: _StepIntervals = None
    threshold: _UsedThreshold = None
    message_scores: _MessageScores = None
    cut: _CutMessages = None


class ScoreResponse(WireModel):
    """Scores in the order of the request."""

    model: str
    demonstration: DemonstrationField = None
    aggregate: Aggregate
    solutions: list[ScoredSolution]
    usage: UsageOut


class CandidateOut(WireModel):
    """A class of equal answers; `members` are indices into the request's solutions. The rewards are over its members
    that have one, null if none has; a class of null rewards counts as 0."""

    answer: str
    count: int
    members: list[int]
    mean_reward: float | None
    max_reward: float | None
    normalized_reward: float | None
    normalized_frequency: float | None
    score: float | None


class VotedSolution(WireModel):
    """One solution of a vote; scores are null if the vote needed none or the solution can't be scored."""

    id: str | None
    answer: str | None = Field(
        description="The answer that was given or found; null if there is none: it counts in N and for no class."
    )
    reward: float | None
    step_scores: list[float] | None
    first_error: int | None
    unscored: Unscored | None
    step_log_odds: _StepLogOdds = None
    step_intervals: _StepIntervals = None
    threshold: _UsedThreshold = None
    message_scores: _MessageScores = None
    cut: _CutMessages = None
    confidence: float | None = Field(
        default=None,
        exclude_if=_is_none,
        description="What a vote by confidence took for it; missing in other votes.",
    )


class VoteCalibrationOut(WireModel):
    """The questions with known answers by which elected answers are accepted: their name, their number, and when the
    calibration was made. `confidence`: the probability over them that a risk is kept. `model`: whose rewards they were
    voted on by; null if the rewards were given."""

    pool: str
    problems: int
    date: str
    confidence: float
    model: str | None


class AppliedCalibration(VoteCalibrationOut):
    """How an answer was judged: it is accepted if its `certainty` reaches the vote's `threshold` for the risk (null: no
    answer can be accepted) and the candidates are `within` what was calibrated. `outside`: the statistics of the
    candidates that are not: the number of `candidates`, the most frequent answer's `share` of them, the
    `highest_reward`."""

    strategy: Strategy
    risk: float
    certainty: float
    threshold: float | None
    within: bool
    outside: list[str]


Accept = Annotated[
    bool | None,
    Field(
        exclude_if=_is_none,
        description="Whether the answer is accepted at the request's `risk`; missing without one, and for a vote that "
        "was not calibrated.",
    ),
]
Calibrated = Annotated[AppliedCalibration | None, Field(exclude_if=_is_none, description="What `accept` rests on.")]


class VoteOut(WireModel):
    """The outcome of one strategy."""

    strategy: Strategy
    answer: str
    solution_index: int
    decided_by: DecidedBy
    tie: bool
    tied_answers: list[str]
    margin: float | None
    candidates: list[CandidateOut]
    accept: Accept = None
    calibration: Calibrated = None


class Voted(WireModel):
    """The solutions a vote was taken on."""

    solutions: list[VotedSolution]
    unscored_count: int = Field(description="Solutions that can't be scored: their answers count, without a reward.")
    without_answer_count: int = Field(description="Solutions without an answer: they count in N and for no class.")
    compared_as_text: list[int] = Field(
        description="Indices of the solutions whose answers could not be compared as mathematics in time."
    )
    model: str
    demonstration: DemonstrationField = None
    usage: UsageOut


class VoteResponse(Voted, VoteOut):
    """The outcome of a vote, with its solutions."""


class CompareResponse(Voted):
    """The outcome of every strategy, over one scoring pass; `agree`: all elect the same answer. In `strategies`, what
    an answer has beyond 1,000 characters is replaced by an ellipsis; `solutions` has it whole."""

    strategies: dict[Strategy, VoteOut]
    agree: bool


class PreviewResponse(WireModel):
    """The exact input of the model: `positions[k]` is the index into `token_ids` at which step k is scored."""

    model: str
    family: str
    text: str
    token_ids: list[int]
    tokens: list[str]
    positions: list[int]
    steps: list[str]


class FieldError(WireModel):
    """One offending field: its JSON pointer and what is wrong with it."""

    pointer: str
    detail: str


class ProblemDetails(WireModel):
    """An error as RFC 9457 describes it, served as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = Field(default=[])
