"""What votes see of a question's candidates: their classes, whether each is right, and their rewards."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from training import pool, resumable, stage
from training.pool import CandidatePool
from training.resumable import Record, ResumableFile
from training.scorers import Scorer, Scores, Solution
from training.settings import AUTO, Reading
from unprm import steps
from unprm.calibration import sigmoid
from unprm.equivalence import Equivalence
from unprm.extraction import extract
from unprm.types import Aggregate

GIVEN = "given rewards"


@dataclass(frozen=True, slots=True)
class JudgedCandidates:
    """What votes see of a question's candidates: classes of equal answers (None: no answer), whether each is right,
    and their rewards (None: the PRM can't read it).

    `scores`: the step scores that the rewards are the minimum of, none for a candidate that was not scored; None if
    rewards were given as numbers.
    """

    classes: tuple[int | None, ...]
    correct: tuple[bool, ...]
    rewards: tuple[float | None, ...]
    scores: tuple[tuple[float, ...], ...] | None = None

    def rewarded(self, aggregate: Aggregate) -> "JudgedCandidates":
        """With the rewards that this makes of the step scores, which must be there."""
        assert self.scores is not None
        return replace(self, rewards=tuple(_reward_of(step_scores, aggregate) for step_scores in self.scores))


def judge(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
    equivalence: Equivalence,
    output: Path,
    console: Console,
    reading: Reading = AUTO,
) -> list[JudgedCandidates]:
    """Judges and scores all candidates; kept in `output` as they come, so that a run that was killed goes on.

    Without a scorer the given rewards count. A solution that the model can't read has no reward. Step scores are kept
    as well: of each candidate, null for one without any; null for all if rewards were given as numbers.

    Raises `OutputMismatch` if `output` holds what another model scored, whatever its name, or other questions.
    """
    model = scorer.identity.config if scorer else {"model": GIVEN}
    config = {"stage": "best-of-n", **model, "questions": pool.digest(questions), **asdict(reading)}
    with ResumableFile(output / "candidates.jsonl", config) as done:
        todo = [question for question in questions if question.id not in done.records]
        with stage.Board(console, "judging candidates", len(questions), len(questions) - len(todo)) as board:
            for question in todo:
                scores = _scored(question, scorer, reading) if scorer else question.step_scores
                rewards = question.rewards or () if scores is None else tuple(map(_reward_of, scores))
                classes, correct = _answers(question, equivalence, reading)
                judgement = {"classes": classes, "correct": correct, "rewards": rewards, "scores": scores}
                done.append({"id": question.id, **judgement})
                board.advance(candidates=len(question.texts))
    return kept(output)


def kept(output: Path) -> list[JudgedCandidates]:
    """What `judge` left in a directory, by the questions' ids: draws don't depend on which came first."""
    records = sorted(resumable.read(output / "candidates.jsonl"), key=lambda record: str(record["id"]))
    return _as_probabilities([_judged(record) for record in records])


def _judged(record: Record) -> JudgedCandidates:
    classes, correct, rewards = (tuple(record[name]) for name in ("classes", "correct", "rewards"))
    scores = record.get("scores")
    return JudgedCandidates(
        classes, correct, rewards, None if scores is None else tuple(tuple(step_scores or ()) for step_scores in scores)
    )


def _scored(question: CandidatePool, scorer: Scorer, reading: Reading) -> list[Scores]:
    solutions = [Solution(question.problem, parts) for parts in question.split(reading)]
    # easy questions get the same text many times
    distinct = list(dict.fromkeys(solution for solution in solutions if solution.steps))
    scores = dict(zip(distinct, scorer.score(distinct), strict=True))
    return [scores.get(solution) for solution in solutions]


def _reward_of(scores: Scores, aggregate: Aggregate = "min") -> float | None:
    return steps.reward(scores, aggregate) if scores else None


def _answers(
    question: CandidatePool, equivalence: Equivalence, reading: Reading
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    found = [extract(text, reading.extraction) for text in question.texts]
    stated = [answer for answer in found if answer is not None]
    names = iter(equivalence.classes(stated))
    # the gold answer is no candidate: it must not change which of them are equal
    right = {answer: equivalence.equal(answer, question.gold) for answer in dict.fromkeys(stated)}
    classes = tuple(None if answer is None else next(names) for answer in found)
    return classes, tuple(answer is not None and right[answer] for answer in found)


def _as_probabilities(judged: Sequence[JudgedCandidates]) -> list[JudgedCandidates]:
    """Rewards that are no probabilities go through the logistic function, which leaves their order."""
    if are_probabilities(reward for candidates in judged for reward in candidates.rewards):
        return list(judged)
    return [
        replace(each, rewards=tuple(None if reward is None else sigmoid(reward) for reward in each.rewards))
        for each in judged
    ]


def are_probabilities(rewards: Iterable[float | None]) -> bool:
    """Whether all rewards are in [0, 1]; a candidate without one (None) may be among them."""
    return all(reward is None or 0 <= reward <= 1 for reward in rewards)
