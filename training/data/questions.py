"""Questions with answers: from JSON lines, from the hub, or generated in the domain of the embedded model."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from training import sources
from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.mini.storyteller import generate
from unprm.types import Extraction


@dataclass(frozen=True, slots=True)
class Question:
    """A problem with its gold answer; `id` is unique among the questions of a run."""

    id: str
    problem: str
    gold: str


class _Record(BaseModel):
    """One line; `question` and `gold` are aliases of `problem` and `answer`; the answer may be stated in `solution`."""

    model_config = ConfigDict(extra="ignore")

    id: str | int | None = None
    problem: str = Field(min_length=1)
    answer: str = Field(min_length=1)

    @field_validator("answer", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, (int, float)) else value


def load(
    source: str, split: str = "train", limit: int | None = None, seed: int = 0, extraction: Extraction = "auto"
) -> list[Question]:
    """The questions of a JSONL file, or of the hub's data set of that name; `limit` of them, drawn with the seed.
    `extraction`: where to look for the answer in the solution if a question has no answer field.

    Raises `RecordInvalid` for a record without a problem or an answer, or with a duplicate id.
    """
    rows = sources.from_file(Path(source)) if Path(source).is_file() else sources.from_hub(source, split)
    questions: dict[str, Question] = {}
    for number, row in rows:
        question = _question(row, source, number, extraction)
        if question.id in questions:
            raise RecordInvalid(source, number, f"the id {question.id!r} occurs twice")
        questions[question.id] = question
    chosen = list(questions.values())
    if limit is not None and limit < len(chosen):
        chosen = [chosen[index] for index in sorted(random.Random(seed).sample(range(len(chosen)), limit))]
    return chosen


def make_mini(count: int, seed: int) -> list[Question]:
    """New questions of the embedded model's domain."""
    rng = random.Random(f"{seed}/questions")
    problems = [generate(rng) for _ in range(count)]
    return [Question(f"mini-{seed}-{index}", p.text, str(p.answer)) for index, p in enumerate(problems)]


def _question(row: object, source: str, number: int, extraction: Extraction) -> Question:
    if not isinstance(row, dict):
        raise RecordInvalid(source, number, "a question is an object with `problem` and `answer`")
    fields = {"problem": row.get("question"), "answer": row.get("gold")}
    fields |= {name: value for name, value in row.items() if value is not None}
    if fields.get("answer") is None:
        fields["answer"] = extract(str(fields.get("solution", "")), extraction)
    try:
        valid = _Record.model_validate(fields)
    except ValidationError as error:
        raise RecordInvalid(source, number, sources.reason(error)) from error
    digest = hashlib.sha256(f"{valid.problem}\0{valid.answer}".encode()).hexdigest()[:16]
    return Question(digest if valid.id is None else str(valid.id), valid.problem, valid.answer)
