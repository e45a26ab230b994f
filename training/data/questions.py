"""Questions with answers: from JSON lines, from the hub, or generated in the domain of the embedded model."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.mini.storyteller import generate
from unprm.types import Extraction

from .. import sources
from ..schema import NonEmpty

NO_ANSWER = "None"
"""The answer of a question that can't be answered, as in GSM-Plus (Li et al., 2024)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A problem with its gold answer; `id` is unique among the questions of a run."""

    id: str
    problem: str
    gold_answer: str


@dataclass(frozen=True, slots=True)
class _QuestionRow:
    """One line; `question` and `gold` are other names of `problem` and `answer`, which may be stated in `solution`."""

    problem: NonEmpty
    answer: Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]
    id: str | int | None = None


def load_questions(
    source: str,
    split: str = "train",
    limit: int | None = None,
    seed: int = 0,
    extraction: Extraction = "auto",
    *,
    per: str | None = None,
    unanswerable: bool = False,
) -> tuple[list[Question], int]:
    """The questions of a JSONL file, or of the hub's data set of that name, and the number of those left out because
    their answer is `None`; `unanswerable`: none is left out.

    `limit`: as many are drawn with the seed; with `per`, as many for each value of this field, independently of the
    other values.
    `extraction`: where to look for the answer in the solution if a question has no answer field.

    Raises `RecordInvalid` for a record without a problem or an answer, with a duplicate id, or without the field `per`;
    if there is no question; and if a value of `per` has fewer questions than the limit.
    """
    row = dict[str, Any]
    rows = list(
        sources.from_file(Path(source), row) if Path(source).is_file() else sources.from_hub(source, split, row)
    )
    questions_by_id = sources.by_id(
        source, ((number, _question(row, source, number, extraction)) for number, row in rows)
    )
    kept = [
        (question, number, row)
        for question, (number, row) in zip(questions_by_id.values(), rows, strict=True)
        if unanswerable or question.gold_answer != NO_ANSWER
    ]
    if not kept:
        raise RecordInvalid(source, 0, "it has no question with an answer")
    questions = [question for question, _, _ in kept]
    if limit is not None and per is not None:
        values = [_value(row, per, source, number) for _, number, row in kept]
        questions = _stratified(questions, values, source, limit, seed)
    elif limit is not None and limit < len(questions):
        questions = [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]
    return questions, len(questions_by_id) - len(kept)


def _value(row: dict[str, Any], per: str, source: str, number: int) -> str:
    if row.get(per) is None:
        raise RecordInvalid(source, number, f"there is no {per!r}, for each value of which questions are drawn")
    return str(row[per])


def _stratified(questions: list[Question], values: list[str], source: str, limit: int, seed: int) -> list[Question]:
    """`limit` questions for each of the values, in the order of the source."""
    strata: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        strata.setdefault(value, []).append(index)
    if strata and (fewest := min(map(len, strata.values()))) < limit:
        reason = f"of {len(strata)} values one has only {fewest} questions, {limit} are to be drawn for each"
        raise RecordInvalid(source, 0, reason)
    drawn = {k for value, stratum in strata.items() for k in random.Random(f"{seed}/{value}").sample(stratum, limit)}
    return [question for index, question in enumerate(questions) if index in drawn]


def make_mini(count: int, seed: int) -> list[Question]:
    rng = random.Random(f"{seed}/questions")
    problems = [generate(rng) for _ in range(count)]
    return [Question(f"mini-{seed}-{index}", p.text, str(p.answer)) for index, p in enumerate(problems)]


def _question(row: dict[str, Any], source: str, number: int, extraction: Extraction) -> Question:
    fields = {"problem": row.get("question"), "answer": row.get("gold")}
    fields |= {name: value for name, value in row.items() if value is not None}
    if fields["answer"] is None:
        fields["answer"] = extract(str(fields.get("solution", "")), extraction)
    valid = sources.parse(fields, _QuestionRow, source, number)
    digest = hashlib.sha256(f"{valid.problem}\0{valid.answer}".encode()).hexdigest()[:16]
    return Question(digest if valid.id is None else str(valid.id), valid.problem, valid.answer)
