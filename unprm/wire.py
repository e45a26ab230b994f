"""The HTTP contract: requests and responses, shared by the server and its clients."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import eq, is_, not_
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
    create_model,
    model_validator,
)

from unprm import steps as step_text
from unprm import trajectories as agents
from unprm.errors import FieldError, InvalidRequest, Unscorable, attempt
from unprm.openai.models import MIN_LOGPROB
from unprm.steps import blanked
from unprm.types import (
    DEFAULT_STRATEGY,
    Aggregate,
    AnswerGroup,
    Combination,
    ComparedAs,
    Cut,
    DecidedBy,
    Evidence,
    Extraction,
    ModelDescription,
    Probability,
    Solution,
    Split,
    StepTag,
    Usage,
)
from unprm.validation_messages import listed
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.votes.vote import Terms, Vote
from unprm.votes.wrf import WrfTerms

MAX_SOLUTIONS = 256
"""Maximum number of candidates in one request; a server may be configured for fewer."""

MAX_PAIRS = 4096
"""Maximum number of answers to be graded in one request."""

MAX_FIELDS = 64
"""Maximum fields in an object: far more than any needs, few enough that each unknown one can be reported."""

SPLIT = (
    "Where texts are split into steps: `paragraph` at blank lines, `step` before lines that begin with `Step k`, "
    "`line` at line breaks; `auto`: the first of these that finds more than one step."
)
EXTRACTION = (
    "Where answers are found: `boxed` in boxes only; `stated` also in <answer> tags, after “answer is”, “Answer:” (in "
    "many languages) and ####, and in a bare last line; `auto` also takes the last number or words of a text that "
    "states none, if another solution or the right answer equals them; `last_number` falls back to the last number; "
    "`choice` takes the letters of the options stated last."
)
Text = Annotated[str, StringConstraints(pattern=r"[^\s\x1c-\x1f]")]
"""A string that is not blank as `str.strip` defines it: the ASCII separators U+001C to U+001F count as blank."""
FreeText = Annotated[str, StringConstraints(pattern=r"^")]
"""A string that UTF-8 can encode; it may be blank."""
Gold = Annotated[list[Text], Field(min_length=1, max_length=16, fail_fast=True)]
"""Right answers."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,200}$")]
OnInvalid = Literal["unscored", "refuse"]
SplitField = Annotated[Split, Field(description=SPLIT)]
ExtractionField = Annotated[Extraction, Field(description=EXTRACTION)]


def check_one(model: BaseModel, *names: str) -> None:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of {' and '.join(names)}, got {' and '.join(given) or 'neither'}")


class Request(BaseModel):
    """Base of the objects in a request."""

    NULLABLE: ClassVar = True
    """Whether a field that is null counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > MAX_FIELDS:
            raise ValueError(f"an object has {len(data)} fields, the limit is {MAX_FIELDS}")
        return {name: value for name, value in data.items() if value is not None} if cls.NULLABLE else data


class WireModel(BaseModel):
    """Base of requests and responses: a field that the contract does not know is refused."""

    model_config = ConfigDict(extra="forbid")


T = TypeVar("T")

# stop at a list's first error: one per element of a hostile list would take a minute and gigabytes
_Steps = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
_StepScores = Annotated[list[Probability], Field(min_length=1, fail_fast=True)]
Confidence = Annotated[float, Field(ge=0.0, le=1e100, allow_inf_nan=False, strict=True)]
"""Bounded so that their sums are numbers."""
_LogProb = Annotated[float, Field(le=0.0, ge=MIN_LOGPROB, allow_inf_nan=False)]
LogProbs = Annotated[list[_LogProb], Field(min_length=1, fail_fast=True)]
_Place = Annotated[int, Field(ge=0, strict=True)]
_Offsets = Annotated[list[tuple[_Place, _Place]], Field(fail_fast=True)]

_PROBLEM = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
_RIGHT = "Step 1: 23 + 45 = 68. The answer is \\boxed{68}."
_WRONG = "Step 1: 23 + 45 = 69. The answer is \\boxed{69}."


class Reading(NamedTuple):
    """How a text is split into steps, of which those beyond `max_steps` are one. `tags`: the step tags of its models;
    `thoughts`: whether those of a text are steps."""

    split: Split
    max_steps: int
    tags: Sequence[StepTag]
    thoughts: bool


class SolutionIn(WireModel, Request):
    """A candidate solution: either free text or a list of steps."""

    compared_as: ClassVar[ComparedAs] = "stated"
    evidence: ClassVar[Evidence | None] = None
    """What its steps are judged by."""

    id: str | None = Field(None, description="Returned with this solution's result.")
    text: FreeText | None = Field(None, description="Free text, split into steps by the request's `split`.")
    steps: _Steps | None = None
    answer: str | None = Field(None, description="Overrides the answer found in the text.")
    step_scores: _StepScores | None = Field(None, description="One score per step, used instead of the model's.")
    confidence: Confidence | None = Field(None, description="The generator's confidence, for votes by confidence.")
    token_logprobs: LogProbs | None = Field(
        None, description="Log-probabilities of its tokens, from which a missing `confidence` is computed."
    )
    offsets: _Offsets | None = Field(
        None,
        description="[start, end) of each of a policy's tokens in the text, in Unicode code points; with them, "
        "`/score_steps` returns `last_tokens`.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "text", "steps")
        if self.text is None and self.offsets is not None:
            raise ValueError("offsets go with a text")
        if self.steps is not None and self.step_scores is not None and len(self.steps) != len(self.step_scores):
            raise ValueError(_mismatch(len(self.step_scores), len(self.steps)))
        return self

    @property
    def characters(self) -> int:
        return len(self.text or "") + sum(map(len, self.steps or ()))

    def candidate(self, index: int, reading: "Reading") -> Solution:
        """The solution, split into steps. Raises `InvalidRequest` if there are not as many steps as step scores."""
        split, max_steps, tags, thoughts = reading
        sent = self.text
        text = sent if sent is None or thoughts else blanked(sent)
        find = partial(step_text.spans, text or "", split, max_steps, tags, exact=text == sent)
        spans = None if text is None else attempt(lambda: tuple(find()), None)
        if spans is None and text is not None:  # could not be split
            spans = ((0, len(text)),) if text.strip() else ()
        steps = tuple(self.steps or step_text.pieces(text or "", spans or ()))
        scores = None if self.step_scores is None else tuple(self.step_scores)
        if scores is not None and len(steps) != len(scores) and len(steps) <= max_steps:
            raise InvalidRequest(f"solution {index}: {_mismatch(len(scores), len(steps))}", f"/solutions/{index}")
        return Solution(
            steps,
            self.answer,
            self.id,
            scores,
            confidence_of(self.confidence, self.token_logprobs),
            spans=spans,
            evidence=self.evidence,
            compared_as=self.compared_as,
            last_tokens=None if self.offsets is None else _last_tokens(spans or (), self.offsets, sent, index),
            text=step_text.join(steps) if sent is None else step_text.untagged(sent, tags),
        )


def _last_tokens(
    spans: Sequence[step_text.TextSpan], offsets: Sequence[step_text.TextSpan], text: str | None, index: int
) -> tuple[int, ...]:
    try:
        return tuple(step_text.last_tokens(spans, offsets, len(text or "")))
    except ValueError as error:
        raise InvalidRequest(f"solution {index}: {error}", f"/solutions/{index}/offsets") from None


def with_scores(solutions: Any, step_scores: Any) -> list[Any]:
    """The solutions as objects with their step scores. Raises `ValueError` if these are not as many, or not lists."""
    solutions, step_scores = listed(solutions, "solutions"), listed(step_scores, "step_scores")
    if len(solutions) != len(step_scores):
        raise ValueError(f"step_scores: expected a list for each of {len(solutions)} solutions, got {len(step_scores)}")
    made: list[Any] = []
    for index, (solution, scores) in enumerate(zip(solutions, step_scores, strict=True)):
        if isinstance(solution, SolutionIn):
            fields = solution.model_dump(exclude_unset=True)
        elif isinstance(solution, Mapping):
            fields = dict(solution)
        else:
            fields = {"text" if isinstance(solution, str) else "steps": solution}
        made.append(fields | {"step_scores": None if scores is None else listed(scores, f"step_scores[{index}]")})
    return made


def confidence_of(sent: float | None, token_logprobs: Sequence[float] | None) -> float | None:
    """A candidate's confidence: the one sent, ≥ 0; else its probability per token, in [0, 1]: the geometric mean over
    its tokens, at least one, of which natural-log probabilities (≤ 0) are given; None with neither."""
    if sent is not None or token_logprobs is None:
        return sent
    return math.exp(math.fsum(token_logprobs) / len(token_logprobs))


def _mismatch(scores: int, steps: int) -> str:
    return f"expected a score for each step: {steps} step{'s have' if steps != 1 else ' has'} {scores} step_scores"


def _form(solution: object) -> str | None:
    if isinstance(solution, str):
        return "text"
    if isinstance(solution, (list, tuple)):
        return "steps"
    return "object" if isinstance(solution, (Mapping, SolutionIn)) else None


GoldField = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Gold, Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "text"),
    Field(description="The right answer, or a list of at most 16 that are all right."),
]

_Each = Annotated[list[T], Field(min_length=1, max_length=MAX_SOLUTIONS, fail_fast=True)]

# discriminated by form, so that an error refers to the form that was sent and not to all three
AnySolution = Annotated[
    Annotated[FreeText, Tag("text")] | Annotated[_Steps, Tag("steps")] | Annotated[SolutionIn, Tag("object")],
    Discriminator(
        _form,
        custom_error_type="form",
        custom_error_message="expected a text, a list of steps, or an object",
    ),
]


def _gold_list(gold: str | list[str]) -> list[str]:
    return [gold] if isinstance(gold, str) else gold


class TrajectoryIn(WireModel, Request):
    """An agent's trajectory: OpenAI's messages, or a whole trajectory in Harbor's format (ATIF). Each assistant message
    is a step."""

    id: str | None = Field(None, description="Returned with this trajectory's result.")
    messages: list[agents.Message] = Field(min_length=1, max_length=2000, fail_fast=True)
    answer: str | None = Field(None, description="Overrides the answer found in the last assistant message.")
    step_scores: _StepScores | None = Field(None, description="One score per step, used instead of the model's.")

    _rendered: agents.Rendered = PrivateAttr()
    """By the request that it is in."""

    @model_validator(mode="before")
    @classmethod
    def _from_atif(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "schema_version" not in data:
            return data
        return {"id": data.get("session_id"), "messages": agents.from_atif(data)}

    @property
    def characters(self) -> int:
        return sum(map(len, self._rendered.steps))

    def candidate(self, index: int, reading: "Reading") -> Solution:
        """The trajectory as a solution. Raises `InvalidRequest` if its steps are not as many as its step scores."""
        rendered, scores = self._rendered, None if self.step_scores is None else tuple(self.step_scores)
        if scores is not None and len(scores) != len(rendered.steps):
            reason = _mismatch(len(scores), len(rendered.steps))
            raise InvalidRequest(f"trajectory {index}: {reason}", f"/trajectories/{index}/step_scores")
        return Solution(
            rendered.steps,
            self.answer,
            self.id,
            scores,
            evidence=rendered.evidence,
            messages=rendered.messages,
            cut=rendered.cut,
            text=rendered.final,
        )


def _as_word(thoughts: object) -> object:
    return {True: "score", False: "leave_out"}[thoughts] if isinstance(thoughts, bool) else thoughts


class TrajectoryTerms(WireModel, Request):
    """How trajectories are read."""

    tools: list[agents.AgentTool] = Field(
        [], max_length=256, fail_fast=True, description="The agent's tools, as in OpenAI's API."
    )
    evidence: Evidence = Field(
        "after",
        description="Whether a step is judged `after` its tools have returned, or on what was known `before` it.",
    )
    observation_tokens: int = Field(
        500,
        ge=1,
        le=100_000,
        description="Length to which a tool's output is truncated in the middle; four characters count as a token.",
    )
    thoughts: Annotated[Literal["leave_out", "score"], BeforeValidator(_as_word)] = Field(
        "leave_out", description="Whether steps include the model's thoughts, such as a text's `<think>…</think>`."
    )

    def render(self, trajectory: TrajectoryIn, pointer: str) -> agents.Rendered:
        """The trajectory as texts, which it keeps. Raises `InvalidRequest` for what is not text; `pointer`: to it."""
        reading = agents.Reading(self.evidence, self.observation_tokens, self.thoughts == "score")
        try:
            trajectory._rendered = agents.render(trajectory.messages, reading)
            return trajectory._rendered
        except InvalidRequest as error:
            raise InvalidRequest(str(error), f"{pointer}{error.pointer}") from None

    def problem_of(self, problem: str | None, rendered: agents.Rendered) -> str | None:
        """The problem with the tools, and with the messages before the first step."""
        parts = (problem, agents.describe_tools(self.tools), rendered.problem)
        return "\n\n".join(part for part in parts if part) or None


def _as_object(solution: str | list[str] | SolutionIn) -> SolutionIn:
    if isinstance(solution, SolutionIn):
        return solution
    text, steps = (solution, None) if isinstance(solution, str) else (None, solution)
    return SolutionIn.model_construct(text=text, steps=steps)


class Candidates(TrajectoryTerms):
    """Candidate solutions of one problem, or trajectories of one task, and how they are read and scored."""

    ELSEWHERE: ClassVar = {
        "strategy": f"each vote has an endpoint of its own, {', '.join(f'POST /vote/{name}' for name in VOTES)}",
        "problems": "a vote is about one problem; POST /score_steps scores solutions of several",
    }
    """Where to say what is not said in a field."""
    NEEDS_SCORES: ClassVar = False
    """Whether every candidate needs step scores."""

    model_config = ConfigDict(json_schema_extra={"example": {"problem": _PROBLEM, "solutions": [[_RIGHT], _WRONG]}})

    problem: Text | None = Field(None, description="Required if the model has to score.")
    solutions: list[AnySolution] = Field(default_factory=list, min_length=1, max_length=MAX_SOLUTIONS)
    trajectories: list[TrajectoryIn] | None = Field(
        None,
        min_length=1,
        max_length=MAX_SOLUTIONS,
        description="Instead of solutions. The messages before the first step must be the same in all; they are part "
        "of the problem.",
    )
    split: SplitField = "auto"
    extraction: ExtractionField = "auto"
    aggregate: Aggregate = Field(
        "min", description="How step scores make a reward; for trajectories the default is `mean`."
    )
    threshold: Probability | None = Field(
        None,
        description="A step that scores below it, in [0, 1], is an error. Default: the model's, or 0.5.",
    )
    on_invalid: OnInvalid = Field(
        "unscored",
        description="Whether a candidate that can't be scored stays without a reward, or the request is refused.",
    )
    log_odds: bool = Field(False, description="Also return each score's log-odds, the raw value of implicit rewards.")
    model: ModelName | Annotated[list[ModelName], Field(min_length=1, max_length=16)] | None = Field(
        None, description="A served model, by default the first; several: the mean of their calibrated step scores."
    )

    _sent: Sequence[SolutionIn | TrajectoryIn] = PrivateAttr()

    @model_validator(mode="after")
    def _read(self) -> Self:
        if bool(self.solutions) == (self.trajectories is not None):
            got = "both" if self.solutions else "neither"
            raise InvalidRequest(f"expected exactly one of /solutions and /trajectories, got {got}", "/solutions")
        self._sent = self.trajectories or list(map(_as_object, self.solutions))
        if self.trajectories is not None:
            rendered = [self.render(trajectory, f"/trajectories/{k}") for k, trajectory in enumerate(self.trajectories)]
            if len({texts.problem for texts in rendered}) > 1:
                raise InvalidRequest("the messages before the first step differ among trajectories", "/trajectories")
            self.problem = self.problem_of(self.problem, rendered[0])
            if "aggregate" not in self.model_fields_set:
                self.aggregate = "mean"
        if self.NEEDS_SCORES and None in self.candidate_problems and not self.has_all_scores:
            raise ValueError("problem is required unless every solution has step_scores")
        return self

    @property
    def count(self) -> int:
        return len(self._sent)

    @property
    def candidate_problems(self) -> Sequence[str | None]:
        return [self.problem] * self.count

    @property
    def place(self) -> str:
        """The JSON pointer of a candidate, {} being its index."""
        return "/solutions/{}" if self.trajectories is None else "/trajectories/{}"

    @property
    def has_all_scores(self) -> bool:
        """Whether every candidate comes with step scores, so that no model is needed."""
        return all(sent.step_scores is not None for sent in self._sent)

    def lengths(self) -> list[int]:
        """Characters of problem plus solution, for each solution without step scores, which a model has to read."""
        pairs = zip(self.candidate_problems, self._sent, strict=True)
        return [len(problem or "") + sent.characters for problem, sent in pairs if sent.step_scores is None]

    def candidates(self, max_steps: int = sys.maxsize, tags: Sequence[StepTag] = ()) -> Iterator[Solution]:
        """The solutions, split into steps as by `Reading`; `answer` is the caller's, not extracted yet.

        Raises `InvalidRequest` for a text whose number of steps differs from its number of step scores.
        """
        reading = Reading(self.split, max_steps, tags, self.thoughts == "score")
        for index, (problem, sent) in enumerate(zip(self.candidate_problems, self._sent, strict=True)):
            yield replace(sent.candidate(index, reading), problem=problem or "")


class RiskTerms(WireModel, Request):
    """How sure an elected answer has to be."""

    risk: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="Highest share of wrong answers among accepted ones; adds `accept` to the response. Needs "
        "--vote-calibration.",
    )


class VoteRequest(Candidates, RiskTerms):
    """Candidates for a vote that needs scores only if the answers don't decide it."""


class OutcomeTerms(BaseModel):
    """What a solution's answer has to be, and how that and its step scores make a reward."""

    gold: GoldField | None = None
    combination: Combination = Field(
        "outcome",
        description="With `gold`: how `combined_reward` is made of `outcome`, 1 for a right answer and else 0, and of "
        "the step scores. `process`: these alone, as `reward`; `outcome_min`: outcome × their minimum; `outcome_mean`: "
        "outcome + `mean_weight` × their mean. Without a step score these two are the outcome.",
    )
    mean_weight: float = Field(0.5, ge=0, le=1, allow_inf_nan=False, description="Of `outcome_mean`.")


class ScoreRequest(Candidates, OutcomeTerms):
    """Candidates to score step by step."""

    NEEDS_SCORES: ClassVar = True

    problems: _Each[Text] | None = Field(None, description="Instead of `problem`: one for each solution.")
    golds: _Each[GoldField] | None = Field(None, description="With `problems`, instead of `gold`: one for each.")
    step_spans: bool = Field(False, description="Also return where in a solution's text its steps are.")

    @model_validator(mode="after")
    def _check_each(self) -> Self:
        for name in ("combination", "mean_weight"):
            if self.right_answers is None and name in self.model_fields_set:
                raise InvalidRequest(f"{name} is of no effect without /gold", f"/{name}")
        if self.problems is None and self.golds is not None:
            raise InvalidRequest("golds is of no effect without /problems", "/golds")
        for name in ("trajectories", "problem", "gold"):
            if self.problems is not None and getattr(self, name) is not None:
                raise InvalidRequest(f"/{name} can't be given with /problems", f"/{name}")
        for name, values in (("problems", self.problems), ("golds", self.golds)):
            if values is not None and len(values) != self.count:
                raise InvalidRequest(f"{len(values)} {name} were sent for {self.count} solutions", f"/{name}")
        return self

    @property
    def candidate_problems(self) -> Sequence[str | None]:
        return super().candidate_problems if self.problems is None else self.problems

    @property
    def right_answers(self) -> list[list[str]] | None:
        if self.golds is not None:
            return list(map(_gold_list, self.golds))
        return None if self.gold is None else [_gold_list(self.gold)] * self.count


class RewardVoteRequest(Candidates, RiskTerms):
    """Candidates for a vote by rewards."""

    NEEDS_SCORES: ClassVar = True


class DefaultVoteRequest(VoteRequest, WrfTerms):
    """Candidates for the server's default vote; `alpha` and `normalization` apply if that is `wrf`."""


class CompareRequest(Candidates, VoteTerms, RiskTerms):
    """Candidates for all votes."""

    NEEDS_SCORES: ClassVar = True


class PairIn(WireModel, Request):
    """A candidate's answer and the right one. With neither answer nor text there is no answer, which is not right."""

    NULLABLE: ClassVar = False

    id: str | None = Field(None, description="Returned with this pair's grade.")
    answer: FreeText | None = Field(None, description="The candidate's answer.")
    text: FreeText | None = Field(None, description="Instead of it, the text that states it, such as a whole solution.")
    problem: FreeText | None = Field(
        None, description="What was asked: its numbers are the last that a text without a stated answer is read as."
    )
    gold: GoldField

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.answer is not None and self.text is not None:
            raise ValueError("only one of answer and text may be given")
        return self

    @property
    def golds(self) -> list[str]:
        return _gold_list(self.gold)


class GradeRequest(WireModel, Request):
    """Answers to be graded, each by its own right answers."""

    NULLABLE: ClassVar = False

    pairs: list[PairIn] = Field(min_length=1, max_length=MAX_PAIRS, fail_fast=True)
    extraction: ExtractionField = "auto"


class FeedbackRequest(WireModel, Request):
    """Whether the answer of an earlier vote was right, or the right answer, to be compared with it."""

    NULLABLE: ClassVar = False

    request_id: str = Field(description="`X-Request-ID` of the response to a vote, or the `id` of a chat completion.")
    correct: bool | None = None
    answer: Text | None = Field(None, description="Instead of it, the right answer.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "correct", "answer")
        return self


class PreviewRequest(TrajectoryTerms):
    """One solution or trajectory, whose exact model input is shown."""

    model_config = ConfigDict(json_schema_extra={"example": {"problem": _PROBLEM, "solution": _RIGHT}})

    problem: Text | None = Field(None, description="Required with a solution.")
    solution: AnySolution | None = None
    trajectory: TrajectoryIn | None = None
    split: SplitField = "auto"
    model: ModelName | None = Field(None, description="A served model, by default the first.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one(self, "solution", "trajectory")
        if self.solution is not None and self.problem is None:
            raise ValueError("problem is required with a solution")
        return self

    def read(self, max_steps: int, tags: Sequence[StepTag]) -> Solution:
        problem, sent = self.problem, self.trajectory or _as_object(self.solution or "")
        if self.trajectory is not None:
            problem = self.problem_of(problem, self.render(self.trajectory, "/trajectory"))
        reading = Reading(self.split, max_steps, tags, self.thoughts == "score")
        return replace(sent.candidate(0, reading), problem=problem or "")


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

LONGEST_COMPARED = 1000
"""Maximum characters of an answer in the outcomes of `CompareResponse`, and in the gateway's reports."""

_is_none = partial(is_, None)


def _missing(description: str | None = None) -> Any:
    """A field that a response has only if it isn't None."""
    return Field(default=None, exclude_if=_is_none, description=description)


class Unscored(WireModel):
    """Why a candidate has no reward."""

    code: Literal["blank", "solution_too_long", "too_many_steps", "no_verdict"]
    detail: str

    @classmethod
    def from_error(cls, error: Unscorable) -> Self:
        return cls.model_validate({"code": error.code, "detail": str(error)})


class Demonstration(WireModel):
    """A notice that the model is a demonstration. `in_domain`: problem and steps are of the kind that it knows, and the
    scores are its; else only equations in the steps are checked."""

    in_domain: bool
    detail: str


DemonstrationField = Annotated[
    Demonstration | None,
    Field(description="null unless a demonstration model gave the scores, or does not know these solutions."),
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
    step_scores: list[float | None] | None = Field(
        description="One per step. Where only equations are checked: 0 if one is false, 1 if all hold, null without "
        "any, and `reward` is null."
    )
    first_error: int | None
    unscored: Unscored | None
    step_log_odds: list[float] | None = _missing()
    message_scores: dict[str, float | None] | None = _missing(
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
        exclude_if=partial(eq, "stated"),
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


class Selection(WireModel):
    """How the vote `select` was taken: `calls` of the model that compared the answers, and the tokens they took. `why`:
    the reason for which the majority decided; null if the comparison did."""

    calls: int
    tokens: int
    why: str | None


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
    supported: bool | None = _missing(
        "Whether a solution with the elected answer has no step below the threshold; missing if none has scores."
    )
    candidates: list[AnswerGroup]
    notes: list[str] = Field(
        default=[],
        exclude_if=not_,
        description="That the elected answer is not `supported`, and another one is, or that a comparison failed; "
        "missing otherwise.",
    )
    selection: Selection | None = _missing("How `select` was taken; missing in other votes.")
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
    why_majority: str | None = _missing(
        "Why a vote that was not named, or takes rewards, is by majority; missing otherwise."
    )

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


class LimitsOut(WireModel):
    """The server's limits."""

    max_solutions: int
    max_steps_per_solution: int
    max_tokens_per_solution: int
    max_body_bytes: int
    max_queued_tokens: int
    max_request_seconds: float
    max_candidates: int | None = Field(
        default=None,
        description="Candidates per gateway answer (`unprm.budget`); null without a gateway.",
    )


class ModelState(WireModel):
    """A model's state as `/admin/models` reports it; `detail`: why it is not ready."""

    name: str
    state: Literal["loading", "ready", "failed"]
    base: str | None = None
    adapter: str | None = None
    detail: str | None = None


class ModelsResponse(WireModel):
    """All models: the default first, then the other served ones, then the models that are loading or failed to load."""

    models: list[ModelState]


class ModelResponse(ModelDescription):
    """A served model, all their names, and the server's limits; `demo` marks the embedded model, which knows only its
    own small domain."""

    max_tokens: int = Field(default=0, exclude=True)
    models: list[str]
    default_strategy: Strategy = Field(
        default=DEFAULT_STRATEGY,
        description="The vote of `POST /vote`; with a demonstration model, the one outside its domain.",
    )
    vote_calibration: VoteCalibrationOut | None = Field(
        default=None, description="The basis of `risk`; null without --vote-calibration."
    )
    limits: LimitsOut


class StatusResponse(WireModel):
    """Response of a health probe."""

    status: Literal["ok"] = "ok"
