"""Responses: scores, votes, previews and errors."""

from functools import partial
from operator import is_, not_
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from unprm.errors import FieldError, Unscorable
from unprm.types import Aggregate, AnswerGroup, Combination, ComparedAs, Cut, DecidedBy, Usage
from unprm.votes.registry import Strategy
from unprm.wire.types import WireModel

LONGEST_COMPARED = 1000
"""Maximum characters of an answer in the outcomes of `CompareResponse`, which would repeat it for every vote, and in
the gateway's reports, where it may be the arguments of tool calls."""

_is_none = partial(is_, None)


def _missing(description: str | None = None) -> Any:
    """A field that a response has only if it isn't None."""
    return Field(default=None, exclude_if=_is_none, description=description)


class Unscored(WireModel):
    """Why a candidate has no reward."""

    code: Literal["blank", "solution_too_long", "too_many_steps", "no_verdict"]
    detail: str

    @classmethod
    def of(cls, error: Unscorable) -> Self:
        return cls.model_validate({"code": error.code, "detail": str(error)})


class Demonstration(WireModel):
    """A notice that a demonstration model gave the scores. They mean nothing unless `in_domain`: the problem is of the
    kind that the model knows."""

    in_domain: bool
    detail: str


DemonstrationField = Annotated[
    Demonstration | None,
    Field(description="null unless a demonstration model gave the scores."),
]


class Score(WireModel):
    """What a solution scores, null if the vote needs no scores or it can't be scored; `first_error`: index of the first
    step below the threshold."""

    id: str | None
    answer: str | None = Field(description="The answer sent or found; null if there is none.")
    read: Literal["stated", "weak"] | None = Field(
        None,
        description="How the answer was found: `stated`, or `weak`: the text ends in it, and another solution, or the "
        "right answer, equals it. null without an answer.",
    )
    reward: float | None
    step_scores: list[float] | None = Field(description="One per step.")
    first_error: int | None
    unscored: Unscored | None
    step_log_odds: list[float] | None = _missing()
    message_scores: dict[str, float] | None = _missing(
        "For a trajectory: scores by the index of the assistant message."
    )
    cut: dict[str, Cut] | None = _missing("For a trajectory: the truncated messages, by index.")
    confidence: float | None = _missing("As used by a vote by confidence; missing in other votes.")


class ScoredSolution(Score):
    """A solution with its steps and their scores."""

    steps: list[str]
    step_spans: list[tuple[int, int]] | None = _missing(
        "[start, end) of each step in the text that was sent, in Unicode code points; missing unless asked "
        "for, and for what was sent in steps."
    )
    last_tokens: list[int] | None = _missing(
        "For each step the index of the token, among the `offsets`, with its last character; missing without them."
    )
    correct: bool | None = _missing("Whether the answer is right; missing without `gold`.")
    compared_as_text: bool | None = _missing("As in `/grade`; missing without `gold`.")
    combined_reward: float | None = _missing(
        "By the request's `combination`; missing without `gold`, and with `process` without a step score."
    )


class ScoreResponse(WireModel):
    """Scores in the order of the request."""

    model: str
    demonstration: DemonstrationField = None
    aggregate: Aggregate
    combination: Combination | None = _missing("How `combined_reward` is made; missing without `gold`.")
    solutions: list[ScoredSolution]
    usage: Usage


class Grade(WireModel):
    """The grade of an answer, null if none was sent or found. `compared_as_text`: whether the answer, or the right one,
    could not be compared as mathematics in time."""

    id: str | None
    correct: bool
    answer: str | None
    compared_as_text: bool
    weak: bool = Field(
        default=False, exclude_if=not_, description="Whether the text states no answer, but ends in the right one."
    )


class GradeResponse(WireModel):
    """Grades in the order of the request."""

    grades: list[Grade]


class VoteCalibrationOut(WireModel):
    """The calibration that decides which elected answers are accepted: the name and number of its questions, and its
    date. `confidence`: the probability, over such questions, that a risk is kept. `model`: the source of its rewards,
    null if they were given."""

    pool: str
    problems: int
    date: str
    confidence: float
    model: str | None


class AppliedCalibration(VoteCalibrationOut):
    """Why an answer is accepted or not: its `certainty` must reach the vote's `threshold` for the risk (null: none can
    be accepted), and the candidates must be `within` the calibrated range. `outside`: which of their statistics are
    not: number of `candidates`, `share` of the most frequent answer, `highest_reward`."""

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
        description="Whether the answer is accepted at the request's `risk`; missing without one or for an "
        "uncalibrated vote.",
    ),
]
ComparedAsField = Annotated[
    ComparedAs,
    Field(
        exclude_if=lambda kind: kind == "stated",
        description="How the elected answer is compared with others: `json`, by its values; `short_text`, a reply that "
        "is itself an answer, by its words; `tool_call`; `none`: nobody has an answer, and every candidate stands for "
        "itself. Missing where it is stated, and compared as mathematics.",
    ),
]
ReadFrom = Annotated[
    Literal["weak"] | None,
    Field(
        exclude_if=_is_none,
        description="`weak` if no candidate states the elected answer: several end in it, as in “So he walks 5 miles.”",
    ),
]
Calibrated = Annotated[AppliedCalibration | None, Field(exclude_if=_is_none, description="The basis of `accept`.")]


class Election(WireModel):
    """The outcome of one vote."""

    strategy: Strategy
    answer: str
    solution_index: int
    decided_by: DecidedBy = Field(
        description="`unanimous`: all solutions have the answer; `only_answer`: no other answer could be read, and "
        "some have none (`without_answer_count`)."
    )
    compared_as: ComparedAsField = "stated"
    read_from: ReadFrom = None
    tie: bool
    tied_answers: list[str]
    margin: float | None
    candidates: list[AnswerGroup]
    accept: Accept = None
    calibration: Calibrated = None


class Voted(WireModel):
    """The solutions a vote was taken on."""

    solutions: list[Score]
    unscored_count: int = Field(
        description="Solutions that can't be scored: their answers still count, without a reward."
    )
    without_answer_count: int = Field(description="Solutions without an answer: they count in N but for no class.")
    compared_as_text: list[int] = Field(
        description="Indices of solutions whose answers could not be compared as mathematics in time."
    )
    model: str
    demonstration: DemonstrationField = None
    usage: Usage


class VoteResponse(Voted, Election):
    """The outcome of a vote, with its solutions."""

    _request_id: str | None = PrivateAttr(None)
    why_majority: str | None = _missing("Why a vote that was not named is by majority; missing otherwise.")

    @property
    def request_id(self) -> str | None:
        """Of a server's response, in a client: for its `feedback`."""
        return self._request_id


class CompareResponse(Voted):
    """The outcome of every vote, over one scoring pass; `agree`: all elect the same answer. Answers in `strategies` are
    truncated to 1,000 characters; `solutions` has them whole."""

    strategies: dict[Strategy, Election]
    agree: bool


class FeedbackResponse(WireModel):
    """What was noted. `accept`: as in the vote, null if it named no risk."""

    correct: bool
    accept: bool | None


class PreviewResponse(WireModel):
    """The model's exact input; step k is scored at index `positions[k]` of `token_ids`."""

    model: str
    family: str
    text: str
    token_ids: list[int]
    tokens: list[str]
    positions: list[int]
    steps: list[str]


class ProblemDetails(WireModel):
    """An error by RFC 9457, as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = Field(default=[])
