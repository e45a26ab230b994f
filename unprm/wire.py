"""The HTTP contract: requests and responses, shared by the server and its clients."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from unprm import steps as step_text
from unprm.calibration import RecordedCalibration
from unprm.errors import InvalidRequest, Unscorable
from unprm.types import Aggregate, DecidedBy, Extraction, MemoryPlan, Normalization, SelfTest, Solution, Split, Strategy

MAX_SOLUTIONS = 256
"""Maximum number of candidates in one request; a server may be configured for fewer."""

Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, strict=True)]
Text = Annotated[str, StringConstraints(pattern=r"[^\s\x1c-\x1f]")]
"""A string that is not blank as `str.strip` defines it: the ASCII separators U+001C to U+001F count as blank."""
OnInvalid = Literal["unscored", "refuse"]
SPLIT = (
    "Where texts are cut into steps: `paragraph` at blank lines, `step` before lines that begin with `Step k`, "
    "`line` at line breaks; `auto` takes the first of these that finds more than one step."
)
EXTRACTION = (
    "Where an answer is looked for: `boxed` in boxes alone; `auto` also in <answer> tags and after “answer is”, "
    "“Answer:” and ####; `last_number` then takes the last number; `choice` takes the last option letter."
)
ON_INVALID = "What becomes of a candidate that can't be scored: it stays without a reward, or the request is refused."
NORMALIZATION = (
    "How reward and frequency are made comparable: each min-max over the answers (the paper), or `share`: "
    "mean reward and share of all candidates as they are."
)
ERROR_BELOW = (
    "A step that scores below it, a number in [0, 1], is an error. By default 0.5; for scores of one model with a "
    "recorded calibration (`/model`), the threshold that was recorded with it."
)
USED_THRESHOLD = "The recorded threshold that `first_error` was found by; missing where there was none."
FreeText = Annotated[str, StringConstraints(pattern=r"^")]
"""A string that UTF-8 can encode; it may be blank."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,200}$")]

# stop at a list's first error: one per element of a hostile list would take a minute and gigabytes
_Steps = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
_StepScores = Annotated[list[Probability], Field(min_length=1, fail_fast=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SolutionIn(_Model):
    """A candidate solution: free text that is split into steps, or its steps; exactly one of the two."""

    id: str | None = Field(None, description="Returned with this solution's result.")
    text: FreeText | None = Field(None, description="Free text, split into steps as the request's `split` says.")
    steps: _Steps | None = None
    answer: str | None = Field(None, description="Overrides the answer found in the text.")
    step_scores: _StepScores | None = Field(None, description="One score per step, used instead of the model's.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.text is None) == (self.steps is None):
            raise ValueError("exactly one of text and steps must be given")
        if self.steps is not None and self.step_scores is not None and len(self.steps) != len(self.step_scores):
            raise ValueError(_mismatch(len(self.step_scores), len(self.steps)))
        return self


def _mismatch(scores: int, steps: int) -> str:
    return f"{scores} step_scores were sent for {steps} steps"


def _form(solution: object) -> str:
    return "text" if isinstance(solution, str) else "steps" if isinstance(solution, (list, tuple)) else "object"


# discriminated by form, so that an error refers to the form that was sent and not to all three
AnySolution = Annotated[
    Annotated[FreeText, Tag("text")] | Annotated[_Steps, Tag("steps")] | Annotated[SolutionIn, Tag("object")],
    Discriminator(_form),
]


class Candidates(_Model):
    """Candidate solutions of one problem, and how they are read and scored."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "problem": "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?",
                "solutions": [
                    ["Step 1: 23 + 45 = 68. The answer is \\boxed{68}."],
                    "Step 1: 23 + 45 = 69. The answer is \\boxed{69}.",
                ],
            }
        },
    )

    problem: Text | None = Field(None, description="Required if the model has to score.")
    solutions: list[AnySolution] = Field(min_length=1, max_length=MAX_SOLUTIONS)
    split: Split = Field("auto", description=SPLIT)
    extraction: Extraction = Field("auto", description=EXTRACTION)
    aggregate: Aggregate = "min"
    threshold: Probability | None = Field(None, description=ERROR_BELOW)
    on_invalid: OnInvalid = Field("unscored", description=ON_INVALID)
    log_odds: bool = Field(False, description="Also return each score's log-odds; the raw value of implicit rewards.")
    model: ModelName | Annotated[list[ModelName], Field(min_length=1, max_length=16)] | None = Field(
        None, description="A served model, by default the first; for several, the mean of their calibrated step scores."
    )

    @property
    def scored(self) -> bool:
        """Whether every solution comes with step scores, so that no model is needed."""
        return all(_has_scores(solution) for solution in self.solutions)

    @property
    def lengths(self) -> list[int]:
        """Characters of problem plus solution, for each solution without step scores, which a model has to read."""
        unscored = (solution for solution in self.solutions if not _has_scores(solution))
        return [len(self.problem or "") + _characters(solution) for solution in unscored]

    def candidates(self) -> list[Solution]:
        """The solutions, split into steps; `answer` is the caller's, not extracted yet.

        Raises `InvalidRequest` for a text whose number of steps differs from its number of step scores.
        """
        return [_candidate(solution, self.split, index) for index, solution in enumerate(self.solutions)]

    def texts(self) -> list[str]:
        """Each solution as one text to extract its answer from: the text as sent, or the joined steps."""
        return [_text(solution) for solution in self.solutions]


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


class WrfRequest(ScoreRequest):
    """Candidates for a weighted reward-frequency vote."""

    alpha: Probability = Field(0.5, description="Weight of the reward; 1 - alpha weighs the frequency.")
    normalization: Normalization = Field("minmax", description=NORMALIZATION)


class PreviewRequest(_Model):
    """One solution whose exact model input is requested."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "problem": "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?",
                "solution": "Step 1: 23 + 45 = 68. The answer is \\boxed{68}.",
            }
        },
    )

    problem: Text
    solution: AnySolution
    split: Split = Field("auto", description=SPLIT)
    model: ModelName | None = Field(None, description="A served model, by default the first.")

    def candidate(self) -> Solution:
        """The solution, split into steps; raises `InvalidRequest` as `ScoreRequest.candidates` does."""
        return _candidate(self.solution, self.split, 0)


class UsageOut(_Model):
    """Tokens of a request: in total, actually run by the model, and reused from earlier computation."""

    tokens: int
    computed_tokens: int
    cached_tokens: int


class Unscored(_Model):
    """Why a candidate has no reward."""

    code: Literal["blank", "solution_too_long", "too_many_steps"]
    detail: str

    @classmethod
    def of(cls, error: Unscorable) -> Self:
        """From the error."""
        return cls.model_validate({"code": error.code, "detail": str(error)})


class ScoredSolution(_Model):
    """Scores of one solution, null for one that can't be scored; `first_error` is the index of the first step below the
    threshold."""

    id: str | None
    steps: list[str]
    step_scores: list[float] | None
    reward: float | None
    first_error: int | None
    answer: str | None
    unscored: Unscored | None
    step_log_odds: list[float] | None = Field(default=None, exclude_if=lambda value: value is None)
    threshold: float | None = Field(default=None, exclude_if=lambda value: value is None, description=USED_THRESHOLD)


class ScoreResponse(_Model):
    """Scores in the order of the request."""

    model: str
    aggregate: Aggregate
    solutions: list[ScoredSolution]
    usage: UsageOut


class CandidateOut(_Model):
    """A class of equal answers; `members` are indices into the request's solutions."""

    answer: str
    count: int
    members: list[int]
    mean_reward: float | None
    max_reward: float | None
    normalized_reward: float | None
    normalized_frequency: float | None
    score: float | None


class VotedSolution(_Model):
    """One solution of a vote; scores are null if the vote needed none or the solution can't be scored."""

    id: str | None
    answer: str | None
    reward: float | None
    step_scores: list[float] | None
    first_error: int | None
    unscored: Unscored | None
    step_log_odds: list[float] | None = Field(default=None, exclude_if=lambda value: value is None)
    threshold: float | None = Field(default=None, exclude_if=lambda value: value is None, description=USED_THRESHOLD)


class VoteOut(_Model):
    """The outcome of one strategy."""

    strategy: Strategy
    answer: str
    solution_index: int
    decided_by: DecidedBy
    tie: bool
    tied_answers: list[str]
    margin: float | None
    candidates: list[CandidateOut]


class Voted(_Model):
    """The solutions a vote was taken on. `compared_as_text`: indices of the candidates whose answers could not be
    compared as mathematics in time."""

    solutions: list[VotedSolution]
    unscored_count: int
    without_answer_count: int
    compared_as_text: list[int]
    model: str
    usage: UsageOut


class VoteResponse(Voted, VoteOut):
    """The outcome of a vote, with its solutions."""


class CompareResponse(Voted):
    """The outcome of every strategy, over one scoring pass; `agree`: all elect the same answer."""

    strategies: dict[Strategy, VoteOut]
    agree: bool


class PreviewResponse(_Model):
    """The exact input of the model: `positions[k]` is the index into `token_ids` at which step k is scored."""

    model: str
    family: str
    text: str
    token_ids: list[int]
    tokens: list[str]
    positions: list[int]
    steps: list[str]


class LimitsOut(_Model):
    """The server's limits."""

    max_solutions: int
    max_steps_per_solution: int
    max_tokens_per_solution: int
    max_body_bytes: int
    max_queued_tokens: int
    max_request_seconds: float


class ModelState(_Model):
    """A model's state as `/admin/models` reports it; `detail`: why it is not ready."""

    name: str
    state: Literal["loading", "ready", "failed"]
    base: str | None = None
    adapter: str | None = None
    detail: str | None = None


class ModelsResponse(_Model):
    """All models: the default first, then the other served ones, then those that are loading or failed to load."""

    models: list[ModelState]


class CalibrationOut(_Model):
    """A recorded calibration: the log-odds of a returned score are `scale` times those of the model's, plus `shift`. By
    default a step that scores below `threshold` is an error."""

    model: str = Field(description="Hub name of the model that it was recorded for.")
    scale: float
    shift: float
    threshold: float

    @classmethod
    def of(cls, recorded: RecordedCalibration) -> Self:
        """From a recorded calibration."""
        return cls(
            model=recorded.model,
            scale=recorded.calibration.scale,
            shift=recorded.calibration.shift,
            threshold=recorded.threshold,
        )


class SelfTestOut(_Model):
    """Result of an engine's self-test before it serves, on sequences that share prefixes."""

    difference: float = Field(
        ge=0,
        description="The largest difference between values that should be equal: margins of the engine and of plain "
        "forward passes (torch), or scores of the same steps alone and together (vllm, remote).",
    )
    tolerance: float = Field(gt=0, description="Largest difference with which the model is served.")
    cached: bool = Field(description="Whether tokens that were run once are not run again.")

    @classmethod
    def of(cls, found: SelfTest) -> Self:
        """From the result of a self-test."""
        return cls(**asdict(found))


class MemoryOut(_Model):
    """Bytes that a model takes on its device."""

    weights: int = Field(ge=0)
    slots: int = Field(ge=0, description="For keys and values, when all are in use; includes --prefix-cache-gb.")
    activations: int = Field(ge=0, description="Most for a pass of --batch-tokens; on a CPU, of 1,024 tokens.")

    @classmethod
    def of(cls, plan: MemoryPlan) -> Self:
        """From a memory plan."""
        return cls(**asdict(plan))


class ModelResponse(_Model):
    """A served model; `demo` marks the embedded model, which knows only its own small domain."""

    name: str
    models: list[str]
    family: str
    base: str = Field(description="Hub name, or the name of its directory.")
    adapter: str | None = Field(description="Hub name, or the name of its directory.")
    revision: str | None
    engine: str
    device: str
    dtype: str
    input_format: str
    digest: str | None = Field(
        default=None,
        description="Hash of weights, input format and `dtype`: models that score differently have different ones. "
        "null if the model runs in another program, which does not report what it has loaded.",
    )
    self_test: SelfTestOut | None = Field(
        default=None, description="null if each sequence is run alone, by the model authors' own forward pass."
    )
    memory: MemoryOut | None = Field(
        default=None, description="null if another program holds the model (vllm, remote)."
    )
    demo: bool
    calibration: CalibrationOut | None = Field(
        default=None,
        description="With --calibration recorded: the calibration of this model's scores when it is used alone.",
    )
    limits: LimitsOut


class StatusResponse(_Model):
    """Answer of a health probe."""

    status: Literal["ok"] = "ok"


class FieldError(_Model):
    """One offending field: its JSON pointer and what is wrong with it."""

    pointer: str
    detail: str


class ProblemDetails(_Model):
    """An error as RFC 9457 describes it, served as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = []


def _has_scores(solution: str | Sequence[str] | SolutionIn) -> bool:
    return isinstance(solution, SolutionIn) and solution.step_scores is not None


def _characters(solution: str | Sequence[str] | SolutionIn) -> int:
    if isinstance(solution, SolutionIn):
        return len(solution.text or "") + sum(map(len, solution.steps or ()))
    return len(solution) if isinstance(solution, str) else sum(map(len, solution))


def _text(solution: str | Sequence[str] | SolutionIn) -> str:
    if isinstance(solution, str):
        return solution
    if isinstance(solution, SolutionIn):
        return solution.text if solution.text is not None else step_text.join(solution.steps or ())
    return step_text.join(solution)


def _candidate(solution: str | Sequence[str] | SolutionIn, split: Split, index: int) -> Solution:
    if isinstance(solution, str):
        return Solution(tuple(step_text.split(solution, split)))
    if not isinstance(solution, SolutionIn):
        return Solution(tuple(solution))
    steps = tuple(solution.steps or step_text.split(solution.text or "", split))
    if solution.step_scores is None:
        return Solution(steps, solution.answer, solution.id)
    if len(steps) != len(solution.step_scores):
        raise InvalidRequest(_mismatch(len(solution.step_scores), len(steps)), f"/solutions/{index}")
    return Solution(steps, solution.answer, solution.id, tuple(solution.step_scores))


VOTE_REQUESTS: dict[Strategy, type[Candidates]] = {
    "majority": VoteRequest,
    "hmr": VoteRequest,
    "prm": RewardVoteRequest,
    "weighted": RewardVoteRequest,
    "wrf": WrfRequest,
}
"""The request model of each strategy."""
