"""Best-of-N: how often each vote elects a right answer among N candidate solutions.

The candidates of a question are given once; a vote at N takes seeded draws of N of them without replacement. A
question's accuracy is the mean over its draws, and the interval is that over questions (paper, section 6).
"""

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from training import journal, sources, stage
from training.journal import Journal
from training.metrics import Share
from training.scorers import Asked, Scorer, Scores
from unprm import answers, steps, votes
from unprm.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Strategy

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 16
"""Draws per question and N; at N = all there is but one."""
GIVEN = "given rewards"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answer and the texts of its candidates; `rewards` if they were given."""

    id: str
    problem: str
    gold: str
    texts: tuple[str, ...]
    rewards: tuple[float, ...] | None


class _Candidate(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str


class _Row(BaseModel):
    """A record of `training sample`, or `{"problem", "answer", "candidates": [{"text", …}]}`."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str | None = Field(None, validation_alias=AliasChoices("id", "idx"))
    problem: str = Field(min_length=1, validation_alias=AliasChoices("problem", "question"))
    gold: str = Field(min_length=1, validation_alias=AliasChoices("gold", "answer"))
    candidates: list[_Candidate] = Field(min_length=1, validation_alias=AliasChoices("candidates", "completions"))


def load(path: Path, reward_field: str = "") -> list[Question]:
    """The questions of a JSONL file, plain or `.gz`. `reward_field`: where each candidate's reward stands.

    Raises `RecordInvalid` with the record that is none, or a candidate without that number; and for an empty file.
    """
    questions: dict[str, Question] = {}
    for number, told in sources.from_file(path):
        try:
            row = _Row.model_validate(told)
            rewards = tuple(_reward(own, reward_field) for own in row.candidates) if reward_field else None
        except ValueError as error:
            raise RecordInvalid(str(path), number, sources.reason(error)) from error
        name = str(number) if row.id is None else row.id
        if name in questions:
            raise RecordInvalid(str(path), number, f"the id {name!r} occurs twice")
        questions[name] = Question(name, row.problem, row.gold, tuple(own.text for own in row.candidates), rewards)
    if not questions:
        raise RecordInvalid(str(path), 0, "there is no question in it")
    return list(questions.values())


def _reward(candidate: _Candidate, field: str) -> float:
    value = (candidate.model_extra or {}).get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"a candidate has no number at {field!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Judged:
    """What votes see of a question's candidates: classes of equal answers (None: no answer), whether each is right,
    and their rewards."""

    classes: tuple[int | None, ...]
    correct: tuple[bool, ...]
    rewards: tuple[float, ...]


IsRight = Callable[[Judged, Sequence[int]], bool]
"""Whether a way of deciding among these candidates (indices) is right."""


def judge(
    questions: Sequence[Question], scorer: Scorer | None, equivalence: Equivalence, output: Path, console: Console
) -> list[Judged]:
    """Judges and scores all candidates; kept in `output` as they come, so that a run that was killed goes on.

    Without a scorer the given rewards count. A solution that does not fit the model gets the reward 0. Step scores are
    kept as well: of each candidate, null for one without any; null for all if rewards were given.
    """
    name = scorer.name if scorer else GIVEN
    config = {"stage": "best-of-n", "model": name, "questions": _digest(questions)}
    with Journal(output / "candidates.jsonl", config) as done:
        todo = [question for question in questions if question.id not in done.records]
        with stage.Board(console, "judging candidates", len(questions), len(questions) - len(todo)) as board:
            for question in todo:
                scores = _scored(question, scorer) if scorer else None
                rewards = question.rewards or () if scores is None else tuple(map(_reward_of, scores))
                found = _answers(question, equivalence)
                done.append({"id": question.id, **asdict(Judged(*found, rewards)), "scores": scores})
                board.advance(candidates=len(question.texts))
    return kept(output)


def kept(output: Path) -> list[Judged]:
    """What `judge` left in a directory, by the questions' ids: draws don't depend on which came first."""
    records = sorted(journal.read(output / "candidates.jsonl"), key=lambda record: str(record["id"]))
    judged = [Judged(tuple(r["classes"]), tuple(r["correct"]), tuple(r["rewards"])) for r in records]
    return _as_probabilities(judged)


def _scored(question: Question, scorer: Scorer) -> list[Scores]:
    asked = [Asked(question.problem, tuple(steps.split(text))) for text in question.texts]
    distinct = list(dict.fromkeys(own for own in asked if own.steps))  # easy questions get the same text many times
    scores = dict(zip(distinct, scorer.score(distinct), strict=True))
    return [scores.get(own) for own in asked]


def _reward_of(scores: Scores) -> float:
    return steps.reward(scores) if scores else 0.0


def _answers(question: Question, equivalence: Equivalence) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    found = [answers.extract(text) for text in question.texts]
    named = iter(equivalence.classes([answer for answer in found if answer is not None]))
    classes = tuple(None if answer is None else next(named) for answer in found)
    # The gold answer is compared with each alone: beside others its unit, or the lack of it, could mean another class.
    right = {answer: equivalence.equal(question.gold, answer) for answer in found if answer is not None}
    return classes, tuple(answer is not None and right[answer] for answer in found)


def _as_probabilities(judged: Sequence[Judged]) -> list[Judged]:
    """Rewards that are no probabilities go through the logistic function, which leaves their order."""
    if _are_probabilities(reward for own in judged for reward in own.rewards):
        return list(judged)
    return [Judged(own.classes, own.correct, tuple(map(_logistic, own.rewards))) for own in judged]


def _are_probabilities(rewards: Iterable[float]) -> bool:
    return all(0 <= reward <= 1 for reward in rewards)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


@dataclass(frozen=True, slots=True)
class Results:
    """`accuracy[strategy][N]`; `any_right[N]`: that at least one of N candidates is right."""

    questions: int
    candidates: int
    accuracy: dict[Strategy, dict[int, Share]]
    any_right: dict[int, Share]


def evaluate(
    questions: Sequence[Question],
    scorer: Scorer | None,
    equivalence: Equivalence,
    output: Path,
    console: Console,
    alpha: float = 0.5,
    seed: int = 0,
) -> Results:
    """Judges, scores, votes, and writes `output/results.json` and `output/elections.jsonl`, which tells of every
    question which votes are right; arguments as those of `judge` and `results`.

    `logistic` in the results: whether the rewards of `candidates.jsonl` are no probabilities, and went through the
    logistic function before the votes.
    """
    judged = judge(questions, scorer, equivalence, output, console)
    measured = results(judged, alpha, seed)
    name = scorer.name if scorer else GIVEN
    logistic = scorer is None and not _are_probabilities(r for question in questions for r in question.rewards or ())
    told = {"model": name, "alpha": alpha, "seed": seed, "logistic": logistic, **asdict(measured)}
    _write_elections(questions, judged, output, alpha)
    journal.replace(output / "results.json", json.dumps(told, indent=2) + "\n")
    return measured


def write_solutions(questions: Sequence[Question], place: Path) -> None:
    """Writes `place/solutions.jsonl`: the questions with the steps and the answers of their candidates, once for all
    PRMs that are evaluated on them, in `place` or below. It goes on where it was stopped.

    Raises `OutputMismatch` if the file is there with other questions.
    """
    with Journal(place / "solutions.jsonl", {"stage": "solutions", "questions": _digest(questions)}) as done:
        for question in questions:
            if question.id not in done.records:
                solutions = [{"steps": steps.split(text), "answer": answers.extract(text)} for text in question.texts]
                told = {"id": question.id, "problem": question.problem, "gold": question.gold, "solutions": solutions}
                done.append(told)


def _write_elections(questions: Sequence[Question], judged: Sequence[Judged], output: Path, alpha: float) -> None:
    """Of every question what a list of them shows; the votes are over all its candidates."""
    records = [
        {
            "id": question.id,
            "problem": question.problem,
            "candidates": len(own.correct),
            "right": sum(own.correct),
            "elected": {name: elects_right(name, alpha, own, range(len(own.correct))) for name in votes.STRATEGIES},
        }
        for question, own in zip(sorted(questions, key=lambda question: question.id), judged, strict=True)
    ]
    journal.write(output / "elections.jsonl", {"stage": "elections", "alpha": alpha}, records)


def results(judged: Sequence[Judged], alpha: float = 0.5, seed: int = 0) -> Results:
    """Takes all votes at all sizes that every question has candidates for."""
    fewest = min(len(own.classes) for own in judged)
    sizes = [size for size in SIZES if size <= fewest]

    def measure(is_right: IsRight) -> dict[int, Share]:
        return {size: Share.of(accuracies(judged, size, is_right, seed)) for size in sizes}

    accuracy = {name: measure(partial(elects_right, name, alpha)) for name in votes.STRATEGIES}
    return Results(len(judged), fewest, accuracy, measure(_any_right))


def accuracies(judged: Sequence[Judged], size: int, is_right: IsRight, seed: int = 0) -> list[float]:
    """Of each question: how often draws of `size` of its candidates are decided rightly."""
    shares = []
    for number, own in enumerate(judged):
        drawn = _draws(len(own.classes), size, f"{seed}/{number}")
        shares.append(sum(is_right(own, picks) for picks in drawn) / len(drawn))
    return shares


def _draws(total: int, size: int, seed: str) -> list[list[int]]:
    if size == total:
        return [list(range(total))]
    rng = random.Random(f"{seed}/{size}")
    return [sorted(rng.sample(range(total), size)) for _ in range(DRAWS)]


def elects_right(strategy: Strategy, alpha: float, judged: Judged, picks: Sequence[int]) -> bool:
    """Whether a vote among these candidates (indices) elects a right answer."""
    classes = [judged.classes[k] for k in picks]
    if all(name is None for name in classes):
        return False
    elected = votes.decide(strategy, classes, [judged.rewards[k] for k in picks], alpha).solution_index
    return judged.correct[picks[elected]]


def _any_right(judged: Judged, picks: Sequence[int]) -> bool:
    return any(judged.correct[k] for k in picks)


def table(measured: Results) -> Table:
    """Accuracy in percent against N."""
    shown = Table(title=f"best of N, {measured.questions} questions: right answers in % (95 % interval)")
    shown.add_column("vote")
    for size in measured.any_right:
        shown.add_column(f"N = {size}", justify="right")
    for name, row in (*measured.accuracy.items(), ("any right", measured.any_right)):
        shown.add_row(name, *(own.in_percent for own in row.values()))
    return shown


def _digest(questions: Sequence[Question]) -> str:
    return hashlib.sha256(json.dumps([asdict(question) for question in questions]).encode()).hexdigest()[:16]
