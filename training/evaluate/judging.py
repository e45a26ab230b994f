"""Judges a question's candidates: classes of equal answers, whether each is right, and rewards."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.calibration import sigmoid
from unprm.errors import RecordInvalid

from .. import sources, stage
from ..resumable import ResumableFile
from ..schema import Scores
from ..stage_settings import AUTO, ReadingSettings
from . import pool
from .pool import CandidatePool
from .records import JudgedCandidates, reward_of
from .scorers import Scorer, SolutionToScore

GIVEN = "given rewards"


def judge(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
    equivalence: Equivalence,
    output: Path,
    console: Console,
    reading: ReadingSettings = AUTO,
) -> list[JudgedCandidates]:
    """Judges and scores all candidates; results are written to `output` as they come, so that an interrupted run can
    resume.

    Without a scorer, the given rewards are used, if there are any. A solution that the model cannot score has no
    reward. Step scores are written, too: null for a candidate without any, null for the whole question if rewards were
    given as numbers.

    Raises `OutputMismatch` if `output` holds scores of another model, even of the same name, or other questions.
    """
    model = scorer.identity.config if scorer else {"model": GIVEN}
    config = {"stage": "best-of-n", **model, "questions": pool.digest(questions), **asdict(reading)}
    with ResumableFile(output / "candidates.jsonl", JudgedCandidates, config) as done:
        todo = [question for question in questions if question.id not in done.records]
        with stage.Board(console, "judging candidates", len(questions), len(questions) - len(todo)) as board:
            for question in todo:
                scores = _scored(question, scorer, reading) if scorer else question.step_scores
                given = question.rewards or (None,) * len(question.texts)
                rewards = given if scores is None else tuple(map(reward_of, scores))
                classes, correct = _answers(question, equivalence, reading)
                done.append(JudgedCandidates(question.id, classes, correct, rewards, scores, question.confidences))
                board.advance(candidates=len(question.texts))
    return kept(output)


def kept(output: Path) -> list[JudgedCandidates]:
    """What `judge` wrote to a directory, sorted by question id, so that draws do not depend on the order of work. The
    logistic function, which keeps their order, is applied to rewards that are not probabilities."""
    records = sources.read(output / "candidates.jsonl", JudgedCandidates)
    judged = sorted(records, key=lambda candidates: candidates.id)
    if all(reward is None or 0 <= reward <= 1 for candidates in judged for reward in candidates.rewards):
        return judged
    return [
        replace(each, rewards=tuple(None if reward is None else sigmoid(reward) for reward in each.rewards))
        for each in judged
    ]


def read_judged(run: Path) -> list[JudgedCandidates]:
    """The same of a directory that `evaluate best-of-n` wrote. Raises `RecordInvalid` if there are none, or fewer than
    two."""
    path = run / "candidates.jsonl"
    if not path.exists():
        raise RecordInvalid(str(run), 0, "there is no candidates.jsonl: give what `evaluate best-of-n --output` wrote")
    judged = kept(run)
    if len(judged) < 2:
        raise RecordInvalid(str(path), 0, f"votes are compared on two questions or more, there are {len(judged)}")
    return judged


def _scored(question: CandidatePool, scorer: Scorer, reading: ReadingSettings) -> tuple[Scores, ...]:
    solutions = [SolutionToScore(question.problem, parts) for parts in question.split(reading)]
    # candidates of easy questions often have the same text
    distinct = list(dict.fromkeys(solution for solution in solutions if solution.steps))
    scores = dict(zip(distinct, scorer.score(distinct), strict=True))
    return tuple(scores.get(solution) for solution in solutions)


def _answers(
    question: CandidatePool, equivalence: Equivalence, reading: ReadingSettings
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    answers = [extract(text, reading.extraction) for text in question.texts]
    stated = [answer for answer in answers if answer is not None]
    names = iter(equivalence.classes(stated))
    # the gold answer is not a candidate: it must not change which candidates are equal
    right = {answer: equivalence.equal(answer, question.gold_answer) for answer in dict.fromkeys(stated)}
    classes = tuple(None if answer is None else next(names) for answer in answers)
    return classes, tuple(answer is not None and right[answer] for answer in answers)
