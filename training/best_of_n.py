"""Best-of-N: how often each vote elects a right answer among N candidate solutions.

The candidates of a question are given once; a vote at N takes seeded draws of N of them without replacement, or all
subsets of N where these are few. A question's accuracy is the mean over its draws, and the interval is that over
questions (paper, section 6). Where candidates have step scores, votes are taken with each way to make a reward of them.
"""

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from training import pool, resumable, stage
from training.bootstrap import Estimate, Numbers
from training.comparisons import ACCURACY_MARGIN, compare, points, shown
from training.metrics import Share
from training.pool import CandidatePool
from training.resumable import Record, ResumableFile
from training.scorers import Scorer, Scores, Solution
from training.settings import AUTO, WRF, Reading, WrfSettings
from unprm import steps, votes
from unprm.equivalence import Equivalence
from unprm.extraction import extract
from unprm.types import Aggregate, AnswerClass, Strategy, VoteResult

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 16
"""Draws per question and N, where there are more subsets of N candidates."""
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
"""The paper's first."""
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


RightShare = Callable[[JudgedCandidates, Sequence[int]], float]
"""How much of a decision among these candidates (indices) is right, in [0, 1]; between only for ties."""


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
    if _are_probabilities(reward for candidates in judged for reward in candidates.rewards):
        return list(judged)
    return [replace(candidates, rewards=tuple(map(_logistic, candidates.rewards))) for candidates in judged]


def _are_probabilities(rewards: Iterable[float | None]) -> bool:
    return all(reward is None or 0 <= reward <= 1 for reward in rewards)


def _logistic(value: float | None) -> float | None:
    if value is None:
        return None
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often votes are right: `accuracy[vote][N]` among N candidates, `accuracy_of_all[vote]` among all candidates
    of each question, however many."""

    accuracy: dict[Strategy, dict[int, Share]]
    accuracy_of_all: dict[Strategy, Share]


@dataclass(frozen=True, slots=True)
class Difference:
    """A vote's accuracy minus that of majority on the same questions, among all candidates, in [-1, 1], with its 95 %
    interval over the questions; and the p-value that there is no difference, corrected for all those reported
    (Holm)."""

    difference: Share
    p: float


@dataclass(frozen=True, slots=True)
class Results:
    """`accuracy` and `accuracy_of_all` as in `Accuracy`, of all votes, with the rewards that were given or the minimum
    of the step scores.

    `candidates` and `most_candidates`: of a question, at the least and at the most. `any_right[N]`: that at least one
    of N candidates is right; `any_right_of_all`: that any is. `aggregates`: the votes that use rewards, with the other
    rewards that are made of step scores; empty if rewards were given as numbers. `against_majority[vote][reward]`: of
    the votes that use rewards.
    """

    questions: int
    candidates: int
    most_candidates: int
    accuracy: dict[Strategy, dict[int, Share]]
    accuracy_of_all: dict[Strategy, Share]
    any_right: dict[int, Share]
    any_right_of_all: Share
    aggregates: dict[Aggregate, Accuracy]
    against_majority: dict[str, dict[str, Difference]]


def evaluate(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
    equivalence: Equivalence,
    output: Path,
    console: Console,
    wrf: WrfSettings = WRF,
    seed: int = 0,
    reading: Reading = AUTO,
    aggregates: Sequence[Aggregate] = AGGREGATES,
) -> Results:
    """Judges, scores, votes, and writes `output/results.json`; `output/votes.md`, the same as a table; and
    `output/elections.jsonl`, which says for each question which votes elect a right answer. Arguments as those of
    `judge` and `results`.

    `logistic` in the results: whether the rewards of `candidates.jsonl` are no probabilities, and went through the
    logistic function before the votes.
    """
    judged = judge(questions, scorer, equivalence, output, console, reading)
    measured = results(judged, wrf, seed, aggregates)
    name = scorer.name if scorer else GIVEN
    logistic = scorer is None and not _are_probabilities(r for question in questions for r in question.rewards or ())
    record = {"model": name, **asdict(wrf), "seed": seed, "logistic": logistic, **asdict(measured)}
    _write_elections(questions, judged, output, wrf)
    resumable.replace(output / "votes.md", markdown(measured))
    resumable.replace(output / "results.json", json.dumps(record, indent=2) + "\n")
    return measured


def write_solutions(questions: Sequence[CandidatePool], place: Path, reading: Reading = AUTO) -> None:
    """Writes `place/solutions.jsonl`: the questions with the steps and the answers of their candidates, once for all
    PRMs that are evaluated on them, in `place` or below. It goes on where it was stopped.

    Raises `OutputMismatch` if the file is there with other questions, or read in another way.
    """
    config = {"stage": "solutions", "questions": pool.digest(questions), **asdict(reading)}
    with ResumableFile(place / "solutions.jsonl", config) as done:
        for question in questions:
            if question.id not in done.records:
                solutions = [
                    {"steps": parts, "answer": extract(text, reading.extraction)}
                    for parts, text in zip(question.split(reading), question.texts, strict=True)
                ]
                record = {"id": question.id, "problem": question.problem, "gold": question.gold, "solutions": solutions}
                done.append(record)


def _write_elections(
    questions: Sequence[CandidatePool], judged: Sequence[JudgedCandidates], output: Path, wrf: WrfSettings
) -> None:
    """What a list of the questions shows of each; votes are over all its candidates."""
    records = [
        {
            "id": question.id,
            "problem": question.problem,
            "candidates": len(candidates.correct),
            "right": sum(candidates.correct),
            "elected": {
                name: elects_right(name, candidates, range(len(candidates.correct)), wrf) for name in votes.STRATEGIES
            },
        }
        for question, candidates in zip(sorted(questions, key=lambda question: question.id), judged, strict=True)
    ]
    resumable.write(output / "elections.jsonl", {"stage": "elections", **asdict(wrf)}, records)


def results(
    judged: Sequence[JudgedCandidates],
    wrf: WrfSettings = WRF,
    seed: int = 0,
    aggregates: Sequence[Aggregate] = AGGREGATES,
) -> Results:
    """Takes all votes at all sizes that every question has candidates for, and over all candidates. `aggregates`: what
    rewards are made of step scores, the minimum in any case."""
    counts = [len(candidates.classes) for candidates in judged]
    sizes = [size for size in SIZES if size <= min(counts)]
    rules = {name: partial(right_share, name, wrf=wrf) for name in votes.STRATEGIES}
    rewarded = {name: rule for name, rule in rules.items() if uses_rewards(name)}
    first = _accuracy(judged, rules, sizes, seed)
    any_right, any_right_of_all = _measure(judged, _any_right, sizes, seed)
    scored = all(candidates.scores is not None for candidates in judged)
    others = [name for name in aggregates if name != AGGREGATES[0]] if scored else []
    by_reward: dict[str, Sequence[JudgedCandidates]] = {
        name: [candidates.rewarded(name) for candidates in judged] for name in others
    }
    return Results(
        questions=len(judged),
        candidates=min(counts),
        most_candidates=max(counts),
        accuracy=first.accuracy,
        accuracy_of_all=first.accuracy_of_all,
        any_right=any_right,
        any_right_of_all=any_right_of_all,
        aggregates={name: _accuracy(by_reward[name], rewarded, sizes, seed) for name in others},
        against_majority=_against_majority({_first_reward(bool(others)): judged} | by_reward, rewarded),
    )


def _against_majority(
    by_reward: Mapping[str, Sequence[JudgedCandidates]], rules: Mapping[Strategy, RightShare]
) -> dict[str, dict[str, Difference]]:
    def outcomes(judged: Sequence[JudgedCandidates], rule: RightShare) -> Numbers:
        return np.array([[rule(candidates, range(len(candidates.classes))) for candidates in judged]])

    majority = outcomes(next(iter(by_reward.values())), partial(right_share, "majority"))
    family = compare(
        {
            (vote, reward): Estimate.mean(outcomes(judged, rule) - majority)
            for vote, rule in rules.items()
            for reward, judged in by_reward.items()
        },
        ACCURACY_MARGIN,
    )
    return {
        vote: {
            reward: Difference(comparison.difference.interval(), comparison.p)
            for (name, reward), comparison in family.items()
            if name == vote
        }
        for vote in rules
    }


def _first_reward(step_scores: bool) -> str:
    return AGGREGATES[0] if step_scores else "given"


def _accuracy(
    judged: Sequence[JudgedCandidates], rules: Mapping[Strategy, RightShare], sizes: Sequence[int], seed: int
) -> Accuracy:
    found = {name: _measure(judged, rule, sizes, seed) for name, rule in rules.items()}
    return Accuracy(
        {name: by_size for name, (by_size, _) in found.items()}, {name: of_all for name, (_, of_all) in found.items()}
    )


def _measure(
    judged: Sequence[JudgedCandidates], rule: RightShare, sizes: Sequence[int], seed: int
) -> tuple[dict[int, Share], Share]:
    """By size, and over all candidates."""
    by_size = {size: Share.of(accuracies(judged, size, rule, seed)) for size in sizes}
    return by_size, Share.of([rule(candidates, range(len(candidates.classes))) for candidates in judged])


def accuracies(judged: Sequence[JudgedCandidates], size: int, rule: RightShare, seed: int = 0) -> list[float]:
    """Of each question: how often draws of `size` of its candidates are decided rightly."""
    shares = []
    for number, candidates in enumerate(judged):
        drawn = _draws(len(candidates.classes), size, f"{seed}/{number}")
        shares.append(sum(rule(candidates, picks) for picks in drawn) / len(drawn))
    return shares


def _draws(total: int, size: int, seed: str) -> Sequence[Sequence[int]]:
    if math.comb(total, size) <= max(DRAWS, total):
        return list(itertools.combinations(range(total), size))
    rng = random.Random(f"{seed}/{size}")
    return [sorted(rng.sample(range(total), size)) for _ in range(DRAWS)]


def uses_rewards(strategy: Strategy) -> bool:
    """Whether rewards ever change what a vote elects."""
    return votes.needs_rewards(strategy, (0, 1))


def right_share(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings = WRF) -> float:
    """How much of a vote among these candidates (indices) is right, in [0, 1]; 0 if it can elect none.

    The answer that is elected is right or not. But where tied answers differ in nothing but the order of their first
    candidates, it is the share of them that are right: the order is luck.
    """
    result = _vote(strategy, judged, picks, wrf)
    if result is None:
        return 0.0
    _, *others = _level(result)
    stand_for = [result.solution_index, *(answer_class.members[0] for answer_class in others)]
    return sum(judged.correct[picks[k]] for k in stand_for) / len(stand_for)


def _level(result: VoteResult) -> list[AnswerClass]:
    """The elected class and those that only came later: tied with it and, where the vote uses rewards, as frequent and
    with the same mean reward."""
    winner = result.classes[0]
    tied = [result.classes[k] for k in result.tied] or [winner]
    if result.decided_by == "majority":
        return tied
    return [
        answer_class
        for answer_class in tied
        if (answer_class.count, answer_class.mean_reward) == (winner.count, winner.mean_reward)
    ]


def elects_right(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings = WRF) -> bool:
    """Whether the answer that a vote among these candidates elects is right, the first of tied ones."""
    result = _vote(strategy, judged, picks, wrf)
    return result is not None and judged.correct[picks[result.solution_index]]


def _vote(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings) -> VoteResult | None:
    """None if there is no answer to elect, or no reward where the vote needs one."""
    classes, rewards = [judged.classes[k] for k in picks], [judged.rewards[k] for k in picks]
    unscored = all(reward is None for reward in rewards)
    if all(name is None for name in classes) or (unscored and votes.needs_rewards(strategy, classes)):
        return None
    return votes.decide(strategy, classes, rewards, wrf.alpha, wrf.normalization)


def _any_right(judged: JudgedCandidates, picks: Sequence[int]) -> float:
    return float(any(judged.correct[k] for k in picks))


def table(measured: Results) -> Table:
    """Accuracy in percent against N, for a terminal."""
    columns, rows = _cells(measured)
    terminal = Table(title=f"best of N, {measured.questions} questions: right answers in % (95 % interval)")
    for number, column in enumerate(columns):
        terminal.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
    for row in rows:
        terminal.add_row(*row)
    return terminal


def markdown(measured: Results) -> str:
    """The same as Markdown, with the differences to majority."""
    columns, rows = _cells(measured)
    columns.append("against majority, points")
    for row in rows:
        against = measured.against_majority.get(row[0], {}).get(row[1])
        row.append(f"{points(against.difference)}, {shown(against.p)}" if against else "")
    lines = [columns, ["---", "---", *["--:"] * (len(columns) - 2)], *rows]
    counts = f"{measured.questions} questions with {_counts(measured)} candidates each"
    title = f"Right answers in % (95 % interval), {counts}; differences among all, p corrected for all of them (Holm):"
    return "\n".join([title, "", *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def _cells(measured: Results) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a row for each vote, one for each of its rewards if it uses them."""
    first = _first_reward(bool(measured.aggregates))
    rewards: list[tuple[str, Results | Accuracy]] = [(first, measured), *measured.aggregates.items()]
    same = measured.most_candidates in measured.any_right  # as many candidates of every question, the largest N

    def row(vote: str, reward: str, by_size: Mapping[int, Share], of_all: Share) -> list[str]:
        shares = [*by_size.values()] if same else [*by_size.values(), of_all]
        return [vote, reward, *(share.in_percent for share in shares)]

    rows = [
        row(vote, reward if uses_rewards(vote) else "–", figures.accuracy[vote], figures.accuracy_of_all[vote])
        for vote in measured.accuracy
        for reward, figures in rewards
        if vote in figures.accuracy
    ]
    rows.append(row("any right", "–", measured.any_right, measured.any_right_of_all))
    sizes = [f"N = {size}" + " (mean@1)" * (size == 1) for size in measured.any_right]
    return ["vote", "reward", *sizes, *([] if same else [f"all {_counts(measured)}"])], rows


def _counts(measured: Results) -> str:
    fewest, most = measured.candidates, measured.most_candidates
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"
