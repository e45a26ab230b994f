"""Questions with their gold answers and sampled candidates, with rewards if the file has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AliasChoices,
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
from .records import Confidences

_GOLD = "ground_truth_answer"
"""The field by which OpenAI's records are recognised."""
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
    """A record of `unprm sample`; `{"problem", "answer", "candidates": [{"text" or "steps", …}]}`, with confidences
    and log-probabilities of candidates as in a request to a server; search-and-learn's, whose `completions` are texts;
    or what `_by_problem` makes of OpenAI's."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str | None = Field(None, validation_alias=AliasChoices("id", "idx"))
    problem: str = Field(min_length=1, validation_alias=AliasChoices("problem", "question"))
    gold_answer: str = Field(min_length=1, validation_alias=AliasChoices("gold", "answer"))
    candidates: list[_Candidate] = Field(min_length=1, validation_alias=AliasChoices("candidates", "completions"))


def read_pool(path: Path, reward_field: str = "") -> list[CandidatePool]:
    """The questions of a file: JSON lines, plain or `.gz`, or parquet.

    `reward_field`: field of a candidate that holds its reward (a number) or the list of its step scores; or field of
    the record that lists these for all candidates, as `scores` of search-and-learn. In OpenAI's scored test samples
    (Lightman et al., 2023) each record is a candidate.

    Raises `RecordInvalid` for an invalid record; a duplicate id; a candidate without reward; step scores that are not
    numbers in [0, 1], or not as many as the steps; a file with both kinds of rewards; and an empty file.
    """
    rows = iter(_parquet(path) if path.suffix == ".parquet" else sources.from_file(path, dict[str, Any]))
    first = next(rows, None)
    rows = iter(()) if first is None else chain((first,), rows)
    if first is not None and _GOLD in first[1]:
        rows = _by_problem(rows, path)
    numbered = [(number, _question(row, path, number, reward_field)) for number, row in rows]
    if not numbered:
        raise RecordInvalid(str(path), 0, "there is no question in it")
    for number, question in numbered:
        if (question.rewards is None) != (numbered[0][1].rewards is None):
            reason = f"records before have numbers at {reward_field!r} and this one step scores, or the other way round"
            raise RecordInvalid(str(path), number, reason)
    return list(sources.by_id(str(path), numbered).values())


def _parquet(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    from datasets import Dataset

    try:
        return enumerate(Dataset.from_parquet(str(path), keep_in_memory=True), 1)
    except ValueError as error:  # pyarrow's is one
        raise RecordInvalid(str(path), 0, f"not a whole parquet file ({error})") from error


def _by_problem(rows: Iterable[tuple[int, dict[str, Any]]], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of OpenAI's scored test samples, `problem`, `steps`, `ground_truth_answer` and scores of each
    candidate, gathered by problem; raises `RecordInvalid` if a problem has several gold answers."""
    by_problem: dict[object, tuple[int, dict[str, Any]]] = {}
    for number, row in rows:
        problem, gold = row.get("problem"), row.get(_GOLD)
        fields: dict[str, Any] = {"id": row.get("unique_id"), "problem": problem, "answer": gold, "candidates": []}
        _, question = by_problem.setdefault(problem, (number, fields))
        if question["answer"] != gold:
            raise RecordInvalid(str(path), number, f"{_GOLD!r} is not the one of an earlier record of the problem")
        question["candidates"].append({name: value for name, value in row.items() if name != "problem"})
    yield from by_problem.values()


def digest(questions: Sequence[CandidatePool]) -> str:
    return resumable.digest([adapter(CandidatePool).dump_python(question, by_alias=True) for question in questions])


def _question(fields: dict[str, Any], path: Path, number: int, reward_field: str) -> CandidatePool:
    row = sources.parse(fields, _PoolRow, str(path), number)
    try:
        given = _given(row.candidates, fields, reward_field) if reward_field else []
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


def _given(candidates: Sequence[_Candidate], fields: Mapping[str, Any], name: str) -> list[Given]:
    """What each candidate has at the field `name`, or what the record's field of this name lists for it."""
    values = fields.get(name)
    if not isinstance(values, list):
        values = [(candidate.model_extra or {}).get(name) for candidate in candidates]
    if len(values) != len(candidates):
        raise ValueError(f"{name!r} has {len(values)} entries for {len(candidates)} candidates")
    rewards: list[Given] = []
    for index, (candidate, value) in enumerate(zip(candidates, values, strict=True)):
        try:
            given = _GIVEN.validate_python(value)
        except ValidationError:
            raise ValueError(
                f"candidate {index} has no number at {name!r}, nor a list of step scores in [0, 1]"
            ) from None
        if isinstance(given, tuple) and candidate.steps is not None and len(given) not in (0, len(candidate.steps)):
            raise ValueError(
                f"candidate {index} at {name!r}: {len(given)} step scores for {len(candidate.steps)} steps"
            )
        rewards.append(given)
    return rewards
