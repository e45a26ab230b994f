"""What votes use of a question's candidates: answer classes and rewards; and whether each candidate is right."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from training import resumable, stage
from training.evaluate import pool
from training.evaluate.pool import CandidatePool
from training.evaluate.scorers import Scorer, Scores, Solution
from training.resumable import Record, ResumableFile
from training.settings import AUTO, Reading
from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.calibration import sigmoid
from unprm.types import Aggregate

GIVEN = "given rewards"


@dataclass(frozen=True, slots=True)
class JudgedCandidates:
    """A question's candidates as votes use them: classes of equal answers (None: no answer), whether each is right, and
    rewards (None: not scored, for example too long for the PRM).

    `scores`: the step scores from which the rewards are computed, empty for a candidate that was not scored; None if
    rewards were given as numbers.
    """

    classes: tuple[int | None, ...]
    correct: tuple[bool, ...]
    rewards: tuple[float | None, ...]
    scores: tuple[tuple[float, ...], ...] | None = None

    def rewarded(self, aggregate: Aggregate) -> "JudgedCandidates":
        """The same candidates with rewards aggregated from the step scores, which must not be None."""
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
    """Judges and scores all candidates; results are written to `output` as they come, so that an interrupted run can
    resume.

    Without a scorer, the given rewards are used. A solution that the model cannot score has no reward. Step scores are
    written, too: null for a candidate without any, null for the whole question if rewards were given as numbers.

    Raises `OutputMismatch` if `output` holds scores of another model, even of the same name, or other questions.
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
    """What `judge` wrote to a directory, sorted by question id, so that draws do not depend on the order of work."""
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
    # candidates of easy questions often have the same text
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
    # the gold answer is not a candidate: it must not change which candidates are equal
    right = {answer: equivalence.equal(answer, question.gold) for answer in dict.fromkeys(stated)}
    classes = tuple(None if answer is None else next(names) for answer in found)
    return classes, tuple(answer is not None and right[answer] for answer in found)


def _as_probabilities(judged: Sequence[JudgedCandidates]) -> list[JudgedCandidates]:
    """Applies the logistic function, which keeps their order, to rewards that are not probabilities."""
    if are_probabilities(reward for candidates in judged for reward in candidates.rewards):
        return list(judged)
    return [
        replace(each, rewards=tuple(None if reward is None else sigmoid(reward) for reward in each.rewards))
        for each in judged
    ]


def are_probabilities(rewards: Iterable[float | None]) -> bool:
    """Whether all rewards are in [0, 1]; None (no reward) is ignored."""
    return all(reward is None or 0 <= reward <= 1 for reward in rewards)
