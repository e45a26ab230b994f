"""Every record that a stage writes or reads: one JSON object per line of a file.

The classes give a value the same name in every stage; where a file has another key, the field names it as its alias.
Keys that a class does not have are ignored.
"""

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AliasChoices, BeforeValidator, Field, StrictBool, TypeAdapter

from unprm.types import Completion

from .stage_settings import AdaptiveSettings

T = TypeVar("T")
NonEmpty = Annotated[str, Field(min_length=1)]
GoldAnswer = Annotated[str, Field(validation_alias=AliasChoices("gold", "answer"), serialization_alias="answer")]
"""`answer` in every file. Older files have it as `gold` beside the candidate's own `answer`, now `predicted`."""
OWN_ANSWER = Field(validation_alias=AliasChoices("predicted", "answer"), serialization_alias="predicted")
"""Of the answer that a candidate states: `predicted` in every file, `answer` in older ones."""
Scores = tuple[float, ...] | None
"""Step scores in [0, 1]; None for a solution that does not fit the model's window."""

VERDICT = 0.5
"""Where only right or wrong will do (ranking, metrics, calibration), a label above this is right."""


def _label(value: object) -> bool | float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 <= value <= 1:
        return bool(value) if value in (0, 1) else value
    raise ValueError("expected true, false, null, or a number in [0, 1]")


Label = Annotated[bool | float | None, BeforeValidator(_label)]
"""True: right; False: wrong; between 0 and 1, a soft label: the probability of right; None: unknown. 0 and 1 are read
as False and True."""


@dataclass(frozen=True, slots=True)
class SampledQuestion:
    """A question and the solutions that a model wrote for it (`unprm sample`). `prompt`: token ids."""

    id: str
    problem: str
    gold_answer: GoldAnswer
    model: str
    prompt: tuple[int, ...]
    solutions: Annotated[tuple[Completion, ...], Field(alias="completions")]


@dataclass(frozen=True, slots=True)
class SelectedSolution:
    """A well-formed solution that is worth annotating (`unprm select`).

    `question`: the question's id. `prompt`, `ids`: token ids of the prompt and of the solution, which is number `index`
    of the question. `ends`: for each step, the number of tokens up to its end; empty without token ids. `predicted`:
    the answer that it states, and `correct`, whether that equals `gold_answer`. `uncertainty`: of the whole solution,
    by the measure of the selection. `mean_step_uncertainty`: by measure, the mean u of the steps of all well-formed
    solutions of the question; None without token ids.
    """

    id: str
    question: str
    problem: str
    gold_answer: GoldAnswer
    model: str
    prompt: tuple[int, ...]
    index: int
    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    steps: tuple[str, ...]
    ends: tuple[int, ...]
    predicted: Annotated[str, OWN_ANSWER]
    correct: StrictBool
    uncertainty: float
    mean_step_uncertainty: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """A prefix that a search tried: its last step (1-based), the digest of its token ids, its value in [0, 1], and its
    rollouts: their number, how many are right, and their tokens."""

    step: int
    prefix: str
    value: float
    samples: int
    correct: int
    tokens: int


Rank = int | None | Literal["unranked"]
"""Index of the step found among those tried, None if it was not tried; "unranked" if the search does not try steps by
falling Δu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedSolution:
    """A solution with step labels, or with the `reason` why it has none (`unprm annotate`).

    `question`: the question's id. `correct`: whether the solution's answer is the gold one. `tau`: the value of the
    question alone, None if it was not needed. `tried`: the prefixes tried, in order; `verified` is their number, and
    `samples` and `tokens` are sums over them.
    """

    id: str
    question: str
    model: str
    problem: str
    gold_answer: GoldAnswer
    steps: tuple[str, ...]
    correct: StrictBool
    labels: Annotated[tuple[StrictBool, ...] | None, Field(exclude_if=lambda labels: labels is None)] = None
    reason: Annotated[str | None, Field(exclude_if=lambda reason: reason is None)] = None
    rank: Annotated[Rank, Field(exclude_if=lambda rank: rank == "unranked")] = "unranked"
    tau: float | None
    verified: int
    samples: int
    tokens: int
    tried: tuple[Trial, ...]

    @property
    def first_error(self) -> int | None:
        """Index of the first step labelled wrong, None if there is none."""
        return None if self.labels is None or all(self.labels) else self.labels.index(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSolution(AnnotatedSolution):
    """An annotated solution that has labels."""

    labels: tuple[StrictBool, ...]


@dataclass(frozen=True, slots=True)
class QuestionValue:
    """What the solutions of one question and sampling model share: τ and its evidence (`unprm annotate`).

    `samples`, `correct`, `tokens`: counts over all rollouts of the question alone. `count`: number of rollouts from
    each prefix if it is fixed, 0 if the model solves the question too seldom; None if it is adaptive.
    """

    id: str
    tau: float
    samples: int
    correct: int
    tokens: int
    count: int | None = None

    def plan(self, adaptive: AdaptiveSettings) -> AdaptiveSettings:
        return adaptive if self.count is None else replace(adaptive, first=self.count, most=self.count)

    def unsolved(self) -> str:
        """Why the question's solutions cannot be labelled; empty if they can."""
        if self.count == 0:
            return "the model solves the question too seldom"
        return "the model never solves the question" if self.tau == 0 else ""


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution to train on, and for each step its label: whether the solution is right up to and including it, the
    probability of that if the label is soft, None if it is unknown.

    Raises `ValueError` if there are not as many labels as steps, no label is known, or a step is blank.
    """

    problem: Annotated[NonEmpty, Field(validation_alias=AliasChoices("problem", "prompt"))]
    gold_answer: Annotated[object, Field(alias="answer", exclude_if=lambda answer: answer is None)] = field(
        default=None, kw_only=True
    )
    steps: Annotated[tuple[str, ...], Field(min_length=1, validation_alias=AliasChoices("steps", "completions"))]
    labels: Annotated[tuple[Label, ...], Field(validation_alias=AliasChoices("labels", "label"))]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.steps):
            raise ValueError(f"{len(self.labels)} labels for {len(self.steps)} steps")
        if any(not step.strip() for step in self.steps):
            raise ValueError("a step is blank")
        if not self.known:
            raise ValueError("no step has a label")

    @property
    def known(self) -> dict[int, float]:
        return {index: label for index, label in enumerate(self.labels) if label is not None}

    def solutions(self) -> "Iterator[LabelledSolution]":
        """Itself, as the one solution of a row."""
        yield self


@dataclass(frozen=True, slots=True)
class BenchmarkSolution:
    """A solution of a benchmark in ProcessBench's layout. `label`: index of the first wrong step, -1 if all are
    right."""

    id: NonEmpty
    problem: NonEmpty
    steps: Annotated[tuple[str, ...], Field(min_length=1)]
    label: Annotated[int, Field(ge=-1)]

    def __post_init__(self) -> None:
        if self.label >= len(self.steps):
            raise ValueError(f"label {self.label}, but the solution has {len(self.steps)} steps")

    @property
    def first_error(self) -> int | None:
        """Index of the first wrong step, None if all are right."""
        return None if self.label < 0 else self.label

    def solutions(self) -> Iterator[LabelledSolution]:
        """Itself, without labels of the steps after the first wrong one."""
        right = len(self.steps) if self.label < 0 else self.label
        labels: list[Label] = [True] * right + [False] + [None] * len(self.steps)
        texts = tuple(map(str.strip, self.steps))
        yield LabelledSolution(self.problem.strip(), texts, tuple(labels[: len(texts)]))


def adapter(kind: type[T]) -> TypeAdapter[T]:
    return _adapter(cast(Hashable, kind))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_line(record: object) -> str:
    """A record as a line of its file. Raises `ValueError` for a number that JSON does not have."""
    row = adapter(type(record)).dump_python(record, by_alias=True, warnings="error")
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
