"""Questions with answers: from JSON lines, from the hub, or generated in the domain of the embedded model."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from training import sources
from training.schema import NonEmpty
from unprm.answers.extraction import extract
from unprm.mini.storyteller import generate
from unprm.types import Extraction


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, (int, float)) else value


@dataclass(frozen=True, slots=True)
class Question:
    """A problem with its gold answer; `id` is unique among the questions of a run."""

    id: str
    problem: str
    gold_answer: str


@dataclass(frozen=True, slots=True)
class _Row:
    """One line; `question` and `gold` are other names of `problem` and `answer`, which may be stated in `solution`."""

    problem: NonEmpty
    answer: Annotated[NonEmpty, BeforeValidator(_as_text)]
    id: str | int | None = None


def load(
    source: str, split: str = "train", limit: int | None = None, seed: int = 0, extraction: Extraction = "auto"
) -> list[Question]:
    """The questions of a JSONL file, or of the hub's data set of that name; `limit` of them, drawn with the seed.
    `extraction`: where to look for the answer in the solution if a question has no answer field.

    Raises `RecordInvalid` for a record without a problem or an answer, or with a duplicate id.
    """
    row = dict[str, Any]
    rows = sources.from_file(Path(source), row) if Path(source).is_file() else sources.from_hub(source, split, row)
    questions = ((number, _question(row, source, number, extraction)) for number, row in rows)
    chosen = list(sources.by_id(source, questions).values())
    if limit is not None and limit < len(chosen):
        chosen = [chosen[index] for index in sorted(random.Random(seed).sample(range(len(chosen)), limit))]
    return chosen


def make_mini(count: int, seed: int) -> list[Question]:
    """New questions of the embedded model's domain."""
    rng = random.Random(f"{seed}/questions")
    problems = [generate(rng) for _ in range(count)]
    return [Question(f"mini-{seed}-{index}", p.text, str(p.answer)) for index, p in enumerate(problems)]


def _question(row: dict[str, Any], source: str, number: int, extraction: Extraction) -> Question:
    fields = {"problem": row.get("question"), "answer": row.get("gold")}
    fields |= {name: value for name, value in row.items() if value is not None}
    if fields["answer"] is None:
        fields["answer"] = extract(str(fields.get("solution", "")), extraction)
    valid = sources.parse(fields, _Row, source, number)
    digest = hashlib.sha256(f"{valid.problem}\0{valid.answer}".encode()).hexdigest()[:16]
    return Question(digest if valid.id is None else str(valid.id), valid.problem, valid.answer)
