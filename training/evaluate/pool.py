"""Questions with their gold answers and sampled candidates, with rewards if the file has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from unprm import steps
from unprm.errors import RecordInvalid
from unprm.wire import Confidence, LogProbs, confidence_of

from .. import resumable, sources
from ..schema import adapter
from ..stage_settings import ReadingSettings

Confidences = Annotated[
    tuple[float | None, ...] | None,
    Field(
        exclude_if=lambda confidences: confidences is None,
        # once they were by vote
        validation_alias=AliasChoices(AliasPath("confidences", "cisc"), "confidences"),
    ),
]
"""The confidence of each candidate, None for one without; None as a whole, and not written, if none has one."""
Given = (
    Annotated[float, Field(strict=True, allow_inf_nan=False)]
    | tuple[Annotated[float, Field(strict=True, ge=0, le=1)], ...]
)
"""A candidate's reward, or its step scores, each in [0, 1]; an empty tuple if it was not scored."""
_GIVEN: TypeAdapter[Given] = TypeAdapter(Given)


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """A question with its gold answer and its candidates.

    `steps`: the given steps of each candidate, None if its text has to be split. `rewards` or `step_scores`: one entry
    per candidate, if given; empty step scores mean that the candidate was not scored. `confidences`: one per candidate
    if any brings one.
    """

    id: str
    problem: str
    gold_answer: Annotated[str, Field(alias="gold")]  # a part of the digest in existing files
    texts: tuple[str, ...]
    steps: tuple[tuple[str, ...] | None, ...]
    rewards: tuple[float, ...] | None = None
    step_scores: tuple[tuple[float, ...], ...] | None = None
    confidences: Confidences = None

    def split(self, reading: ReadingSettings) -> list[tuple[str, ...]]:
        return [
            tuple(steps.split(text, reading.split)) if given is None else given
            for text, given in zip(self.texts, self.steps, strict=True)
        ]


class _Candidate(BaseModel):
    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value

    text: str = ""
    steps: list[str] | None = None
    confidence: Confidence | None = None
    token_logprobs: LogProbs | None = Field(None, validation_alias=AliasChoices("token_logprobs", "logprobs"))

    @field_validator("token_logprobs", mode="before")
    @classmethod
    def _none_if_empty(cls, values: object) -> object:
        return values or None  # an empty solution has no tokens

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if not {"text", "steps"} & self.model_fields_set:
            raise ValueError("a candidate has neither `text` nor `steps`")
        return self


class _PoolRow(BaseModel):
    """A record of `unprm sample`, or `{"problem", "answer", "candidates": [{"text" or "steps", …}]}`, with confidences
    and log-probabilities of candidates as in a request to a server."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str | None = Field(None, validation_alias=AliasChoices("id", "idx"))
    problem: str = Field(min_length=1, validation_alias=AliasChoices("problem", "question"))
    gold_answer: str = Field(min_length=1, validation_alias=AliasChoices("gold", "answer"))
    candidates: list[_Candidate] = Field(min_length=1, validation_alias=AliasChoices("candidates", "completions"))


def read_pool(path: Path, reward_field: str = "") -> list[CandidatePool]:
    """The questions of a file, in JSON lines or an array, plain or `.gz`.

    `reward_field`: field of a candidate that holds its reward (a number) or the list of its step scores.

    Raises `RecordInvalid` for an invalid record; a duplicate id; a candidate without reward; step scores that are not
    numbers in [0, 1], or not as many as the steps; a file with both kinds of rewards; and an empty file.
    """
    rows = sources.numbered(path, _PoolRow)
    numbered = [(number, _question(row, path, number, reward_field)) for number, row in rows]
    if not numbered:
        raise RecordInvalid(str(path), 0, "there is no question in it")
    for number, question in numbered:
        if (question.rewards is None) != (numbered[0][1].rewards is None):
            reason = f"records before have numbers at {reward_field!r} and this one step scores, or the other way round"
            raise RecordInvalid(str(path), number, reason)
    return sources.unique(path, numbered)


def digest(questions: Sequence[CandidatePool]) -> str:
    return resumable.digest([adapter(CandidatePool).dump_python(question, by_alias=True) for question in questions])


def _question(row: _PoolRow, path: Path, number: int, reward_field: str) -> CandidatePool:
    try:
        given = [_given(k, each, reward_field) for k, each in enumerate(row.candidates)] if reward_field else []
    except ValueError as error:
        raise RecordInvalid(str(path), number, str(error)) from error
    rewards = tuple(value for value in given if isinstance(value, float))
    scores = tuple(value for value in given if isinstance(value, tuple))
    if rewards and scores:
        reason = f"some candidates have a number at {reward_field!r}, others a list of step scores"
        raise RecordInvalid(str(path), number, reason)
    confidences = tuple(confidence_of(each.confidence, each.token_logprobs) for each in row.candidates)
    return CandidatePool(
        str(number) if row.id is None else row.id,
        row.problem,
        row.gold_answer,
        tuple(candidate.text or steps.join(candidate.steps or ()) for candidate in row.candidates),
        tuple(None if candidate.steps is None else tuple(candidate.steps) for candidate in row.candidates),
        rewards or None,
        scores or None,
        None if all(confidence is None for confidence in confidences) else confidences,
    )


def _given(index: int, candidate: _Candidate, name: str) -> Given:
    try:
        given = _GIVEN.validate_python((candidate.model_extra or {}).get(name))
    except ValidationError:
        raise ValueError(f"candidate {index} has no number at {name!r}, nor a list of step scores in [0, 1]") from None
    if isinstance(given, tuple) and candidate.steps is not None and len(given) not in (0, len(candidate.steps)):
        raise ValueError(f"candidate {index} at {name!r}: {len(given)} step scores for {len(candidate.steps)} steps")
    return given
