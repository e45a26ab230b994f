"""Samples candidate solutions for questions, with the log-probabilities of their tokens (paper, section 3.1)."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from rich.console import Console

from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.mini.storyteller import generate
from unprm.types import Extraction, Sampler

from .. import sources, stage
from ..resumable import ResumableFile
from ..schema import NonEmpty, SampledQuestion
from ..stage_settings import SampleSettings

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
    rows = sources.numbered(source, dict[str, Any], split)
    asked = [(number, row, _question(row, source, number, extraction)) for number, row in rows]
    sources.unique(source, ((number, question) for number, _, question in asked))
    kept = [each for each in asked if unanswerable or each[2].gold_answer != NO_ANSWER]
    if not kept:
        raise RecordInvalid(source, 0, "it has no question with an answer")
    strata: dict[str, list[str]] = {}
    for number, row, question in kept:
        if per and row.get(per) is None:
            raise RecordInvalid(source, number, f"there is no {per!r}, for each value of which questions are drawn")
        strata.setdefault(str(row[per]) if per else "", []).append(question.id)
    limit = len(kept) if limit is None else limit
    if per and (fewest := min(map(len, strata.values()))) < limit:
        reason = f"of {len(strata)} values one has only {fewest} questions, {limit} are to be drawn for each"
        raise RecordInvalid(source, 0, reason)
    drawn = set[str]()
    for value, stratum in strata.items():
        drawn.update(random.Random(f"{seed}/{value}" if per else seed).sample(stratum, min(limit, len(stratum))))
    return [question for _, _, question in kept if question.id in drawn], len(asked) - len(kept)


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


def origin_of(sampler: Sampler) -> dict[str, Any]:
    """What a file's configuration says of the sampler that made its records."""
    return {"model": sampler.model} | ({"neutral_sampling": dict(sampler.neutral)} if sampler.neutral else {})


def seed_of(*parts: object) -> int:
    """A seed below 2^48 that depends on all parts, the same on every machine."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:6], "big")


async def sample(
    questions: Sequence[Question],
    sampler: Sampler,
    output: Path,
    settings: SampleSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Appends a `SampledQuestion` per question to `output`.

    `concurrency`: questions sampled at the same time. Returns the failed questions with reasons.
    """
    config = {"stage": "sample", **origin_of(sampler), **asdict(settings)}
    with ResumableFile(output, SampledQuestion, config) as written:
        todo = [question for question in questions if not written.has(question, "problem", "gold_answer")]
        title = f"sampling from {sampler.model}"
        with stage.Board(console, title, len(questions), len(questions) - len(todo)) as board:

            async def work(question: Question) -> None:
                record = await sample_question(question, sampler, settings)
                written.append(record)
                tokens = sum(len(solution.logprobs) for solution in record.solutions)
                board.advance(solutions=len(record.solutions), tokens=tokens)

            return await stage.process(todo, work, lambda question: question.id, concurrency)


async def sample_question(question: Question, sampler: Sampler, settings: SampleSettings) -> SampledQuestion:
    seed = seed_of(settings.seed, sampler.model, question.id)
    return SampledQuestion(
        id=question.id,
        problem=question.problem,
        gold_answer=question.gold_answer,
        model=sampler.model,
        prompt=sampler.prompt(question.problem),
        solutions=tuple(await sampler.solve(question.problem, settings.k, seed)),
    )
