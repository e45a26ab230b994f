"""Questions with answers: from JSON lines, from the hub, or generated in the domain of the embedded model."""

import hashlib
import random
from dataclasses import dataclass
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
    """The questions of a file, of those in a directory, or of the hub's data set of that name, and the number of those
    left out because their answer is `None`; `unanswerable`: none is left out.

    `limit`: as many are drawn with the seed; with `per`, as many for each value of this field, independently of the
    other values.
    `extraction`: where to look for the answer in the solution if a question has no answer field.

    Raises `RecordInvalid` for a record without a problem or an answer, with a duplicate id, or without the field `per`;
    if there is no question; and if a value of `per` has fewer questions than the limit.
    """
    rows = list(sources.records_of(source, split, dict[str, Any]))
    questions = [_question(row, source, number, extraction) for number, row in rows]
    sources.by_id(source, ((number, question) for (number, _), question in zip(rows, questions, strict=True)))
    kept = [
        (number, row, question)
        for (number, row), question in zip(rows, questions, strict=True)
        if unanswerable or question.gold_answer != NO_ANSWER
    ]
    if not kept:
        raise RecordInvalid(source, 0, "it has no question with an answer")
    left_out, questions = len(questions) - len(kept), [question for _, _, question in kept]
    if limit is not None and per is not None:
        drawn = _stratified(kept, per, source, limit, seed)
        questions = [question for question in questions if question.id in drawn]
    elif limit is not None and limit < len(questions):
        questions = [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]
    return questions, left_out


def _stratified(
    rows: list[tuple[int, dict[str, Any], Question]], per: str, source: str, limit: int, seed: int
) -> set[str]:
    """The ids of `limit` questions for each value of the field `per`."""
    strata: dict[str, list[str]] = {}
    for number, row, question in rows:
        if row.get(per) is None:
            raise RecordInvalid(source, number, f"there is no {per!r}, for each value of which questions are drawn")
        strata.setdefault(str(row[per]), []).append(question.id)
    if (fewest := min(map(len, strata.values()))) < limit:
        reason = f"of {len(strata)} values one has only {fewest} questions, {limit} are to be drawn for each"
        raise RecordInvalid(source, 0, reason)
    return {k for value, stratum in strata.items() for k in random.Random(f"{seed}/{value}").sample(stratum, limit)}


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
