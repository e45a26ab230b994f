"""Judges a question's candidates: classes of equal answers, by the same flow as a vote of the server, whether each is
right, and rewards."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictBool
from rich.console import Console

from unprm import pipeline, steps
from unprm.answers.equivalence import Equivalence, Pair
from unprm.answers.kinds import KINDS, Kind
from unprm.calibration import sigmoid
from unprm.errors import NoAnswer, RecordInvalid
from unprm.library import LocalScorer
from unprm.types import Aggregate, ComparedAs, Solution
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import AnySolution, VoteRequest

from .. import sources, stage
from ..resumable import ResumableFile
from ..schema import Scores
from ..stage_settings import AUTO, ReadingSettings
from . import pool
from .pool import CandidatePool, Confidences
from .scorers import Scorer

GIVEN = "given rewards"


@dataclass(frozen=True, slots=True)
class JudgedCandidates:
    """A question's candidates as votes use them (`unprm evaluate best-of-n`): classes of equal answers (None: no
    answer), whether each is right, and rewards (None: not scored, for example too long for the PRM).

    `scores`: the step scores from which the rewards are computed, None or empty for a candidate that was not scored;
    None as a whole if rewards were given as numbers. `confidences`: for the votes by confidence, if there are any.
    `stated`: whether the answers are stated ones, and not, say, JSON.
    """

    id: str
    classes: tuple[int | None, ...]
    correct: tuple[StrictBool, ...]
    rewards: tuple[float | None, ...]
    scores: tuple[Scores, ...] | None = None
    confidences: Confidences = None
    stated: Annotated[StrictBool, Field(exclude_if=bool)] = True

    def values(self, strategy: Strategy) -> tuple[float | None, ...]:
        """The rewards or confidences that the vote takes; for a vote by confidence there must be some."""
        if VOTES[strategy].signal != "confidence":
            return self.rewards
        assert self.confidences is not None
        return self.confidences

    def rewarded(self, aggregate: Aggregate) -> "JudgedCandidates":
        assert self.scores is not None
        return replace(self, rewards=tuple(reward_of(scores, aggregate) for scores in self.scores))


def reward_of(scores: Scores, aggregate: Aggregate = "min") -> float | None:
    return steps.reward(scores, aggregate) if scores else None


def judge(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
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
    made = {"questions": pool.digest(questions), "answers": "as voted on", **asdict(reading)}
    config = {"stage": "best-of-n", **model, **made}
    with ResumableFile(output / "candidates.jsonl", JudgedCandidates, config) as done:
        todo = [question for question in questions if question.id not in done.records]
        with stage.Board(console, "judging candidates", len(questions), len(questions) - len(todo)) as board:
            for question in todo:
                scores = _scored(question, scorer, reading) if scorer else question.step_scores
                given = question.rewards or (None,) * len(question.texts)
                rewards = given if scores is None else tuple(map(reward_of, scores))
                classes, correct, stated = elect(question, reading)
                done.append(
                    JudgedCandidates(question.id, classes, correct, rewards, scores, question.confidences, stated)
                )
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
    solutions = question.split(reading)
    # candidates of easy questions often have the same text
    distinct = list(dict.fromkeys(parts for parts in solutions if parts))
    scored = scorer.score([Solution(parts, problem=question.problem) for parts in distinct])
    scores = dict(zip(distinct, scored, strict=True))
    return tuple(scores.get(parts) for parts in solutions)


class _Pool(VoteRequest):
    """A question's candidates as a request for a vote. A pool may have more of them than a server takes."""

    solutions: list[AnySolution] = Field(min_length=1)


def elect(question: CandidatePool, reading: ReadingSettings) -> tuple[tuple[int | None, ...], tuple[bool, ...], bool]:
    """The candidates' classes of equal answers, as a server reads and compares them for a vote; whether each is right;
    and whether all answers are stated ones: a server judges the risk of no others."""
    sent = {"solutions": question.texts, "extraction": reading.extraction, "split": reading.split}
    scorer = LocalScorer()
    try:
        ballot = scorer.finish(pipeline.prepare_ballot(_Pool.model_validate(sent), ["majority"], scorer))
    except NoAnswer:
        return (None,) * len(question.texts), (False,) * len(question.texts), True
    answers = [None if each.answer is None else (each.compared_as, each.answer) for each in ballot.solutions]
    right: dict[tuple[ComparedAs, str] | None, bool] = {None: False}
    formal: list[tuple[ComparedAs, str]] = []
    for kind, answer in dict.fromkeys(filter(None, answers)):
        if (key := KINDS[kind].key(answer)) is None:
            formal.append((kind, answer))
        else:
            right[kind, answer] = key == _gold_key(KINDS[kind], question.gold_answer)
    # the gold answer is not a candidate: it must not change which candidates are equal
    matches = Equivalence().match([Pair(answer, [question.gold_answer]) for _, answer in formal])
    right |= zip(formal, (match.correct for match in matches), strict=True)
    numbers: dict[int, int] = {}
    classes = tuple(None if k is None else numbers.setdefault(k, len(numbers)) for k in ballot.classes)
    stated = all(each is None or each[0] == "stated" for each in answers)
    return classes, tuple(right[each] for each in answers), stated


def _gold_key(kind: Kind, gold: str) -> str | None:
    (read,) = kind.read([gold]) if kind.read else (None,)
    return kind.key(read or gold)
