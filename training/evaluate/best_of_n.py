"""Best-of-N: how often each vote elects a right answer among N candidate solutions.

Each question has a fixed set of candidates; votes at N are taken on seeded draws of N of them without replacement, or
on all subsets of size N if these are few. A question's accuracy is the mean over its draws, and the interval is over
questions (paper, section 6). If candidates have step scores, votes are taken with each aggregate of them as reward.
Answers are read and compared once, among all of a question's candidates.
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
from rich.console import Console

from unprm.election.decide import decide, drop_unanswered, needed_signal
from unprm.types import Aggregate
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.votes.vote import Terms
from unprm.votes.wrf import WrfTerms

from .. import resumable
from ..schema import adapter
from ..stage_settings import AUTO, ReadingSettings
from .judging import GIVEN, JudgedCandidates, judge
from .metrics import Estimate, Numbers, Share, compare, in_markdown, points, shown
from .pool import CandidatePool
from .scorers import Scorer

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 16
"""Draws per question and N, if there are more subsets of N candidates."""
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
"""The paper's first."""
NO_REWARD = "–"
"""In place of the reward's name, for a vote that uses none."""
ANY_RIGHT = "any right"
"""In place of a vote: whether any candidate is right."""
STUDIED: tuple[Strategy, ...] = ("majority", "prm", "hmr", "wrf", "weighted")
"""The votes that reports and the lab compare: the paper's, and the weighted majority."""

RightShare = Callable[[JudgedCandidates, Sequence[int]], float]
"""How right the decision among these candidates (indices) is: 0 or 1, in between only for ties."""


@dataclass(frozen=True, slots=True)
class VoteAccuracy:
    """How often a vote is right with a reward: an aggregate of step scores, "given" or `NO_REWARD`.

    `by_size[N]`: among N candidates; `of_all`: among all of a question's. `against_majority`: the latter minus that of
    majority on the same questions, in [-1, 1], and `p`, its p-value against no difference, corrected for all
    differences reported (Holm); None for majority and `ANY_RIGHT`.
    """

    vote: str
    reward: str
    by_size: dict[int, Share]
    of_all: Share
    against_majority: Share | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class BestOfNResults:
    """All votes with all rewards, and `ANY_RIGHT`. `candidates`, `most_candidates`: smallest and largest number of
    candidates of a question."""

    questions: int
    candidates: int
    most_candidates: int
    rows: tuple[VoteAccuracy, ...]

    @property
    def accuracy(self) -> dict[str, dict[int, Share]]:
        """By vote and N, with the given rewards or the minimum of the step scores."""
        return {row.vote: row.by_size for row in reversed(self.rows)}


def first_reward(step_scores: bool) -> str:
    return AGGREGATES[0] if step_scores else "given"


def uses_rewards(strategy: Strategy) -> bool:
    return needed_signal(strategy, (0, 1)) == "reward"


def takeable(judged: Sequence[JudgedCandidates]) -> tuple[Strategy, ...]:
    """The votes by answers alone, those by rewards if there are any, and those by confidence for which every question
    has confidences."""
    there = {
        "none": True,
        "reward": any(reward is not None for candidates in judged for reward in candidates.rewards),
        "confidence": all(candidates.confidences for candidates in judged),
    }
    return tuple(name for name, vote in VOTES.items() if there.get(vote.signal))


def right_share(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], terms: Terms = DEFAULTS) -> float:
    """How right a vote among these candidates (indices) is, in [0, 1]; 0 if no answer can be elected: no candidate has
    one, or none of those that have one the reward or confidence that the vote needs.

    It is 1 if the elected answer is right, else 0. If answers are tied and differ only in the order of their first
    candidates, it is the share of right ones among them, as that order is chance.
    """
    given = judged.values(strategy)
    classes = [judged.classes[k] for k in picks]
    values = drop_unanswered(classes, [given[k] for k in picks])
    lacking = values is None and needed_signal(strategy, classes, terms) != "none"
    if lacking or all(name is None for name in classes):
        return 0.0
    rewards = None if VOTES[strategy].signal == "confidence" else values
    result = decide(strategy, classes, rewards, terms, values)
    winner, *others = result.candidates[: len(result.tied_answers) or 1]
    if result.decided_by != "majority":  # those that lose by order alone have its count and mean reward, too
        level = winner.count, winner.mean_reward
        others = [each for each in others if (each.count, each.mean_reward) == level]
    stand_for = [result.solution_index, *(group.members[0] for group in others)]
    return sum(judged.correct[picks[k]] for k in stand_for) / len(stand_for)


def evaluate(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
    output: Path,
    console: Console,
    seed: int = 0,
    reading: ReadingSettings = AUTO,
) -> BestOfNResults:
    """Judges and scores the candidates, takes the votes, and writes `output/results.json` and `output/votes.md`, the
    same as a table. Arguments as for `judge` and `results`."""
    measured = results(judge(questions, scorer, output, console, reading), seed)
    accuracy = adapter(dict[str, dict[int, Share]]).dump_python(measured.accuracy, mode="json")
    record = {"model": scorer.identity.model if scorer else GIVEN, **dict(WrfTerms()), "seed": seed}
    record |= {"any_right": accuracy.pop(ANY_RIGHT), "accuracy": accuracy, **asdict(measured)}
    resumable.replace(output / "votes.md", markdown(measured))
    resumable.write_results(output, record)
    return measured


def results(judged: Sequence[JudgedCandidates], seed: int = 0) -> BestOfNResults:
    """Takes all votes at all N for which every question has enough candidates, and over all candidates, with each
    aggregate of the step scores as reward."""
    counts = [len(candidates.classes) for candidates in judged]
    sizes = [size for size in SIZES if size <= min(counts)]
    rules = {name: partial(right_share, name) for name in takeable(judged)}
    scored = all(candidates.scores is not None for candidates in judged)
    others = AGGREGATES[1:] if scored else ()
    by_reward: dict[str, Sequence[JudgedCandidates]] = {first_reward(bool(others)): judged}
    by_reward |= {name: [candidates.rewarded(name) for candidates in judged] for name in others}
    taken = {
        (vote, reward): by_reward.get(reward, judged)
        for vote in rules
        for reward in (by_reward if uses_rewards(vote) else (NO_REWARD,))
    }
    of_all = {(vote, reward): outcomes(each, rules[vote]) for (vote, reward), each in taken.items()}
    majority = of_all["majority", NO_REWARD]
    against = compare({key: Estimate.mean(right - majority) for key, right in of_all.items() if key[0] != "majority"})
    rows = []
    for (vote, reward), each in taken.items():
        row = _row(vote, reward, each, rules[vote], sizes, seed)
        if (tested := against.get((vote, reward))) is not None:
            row = replace(row, against_majority=tested.difference.interval(), p=tested.p)
        rows.append(row)
    rows.append(_row(ANY_RIGHT, NO_REWARD, judged, _any_right, sizes, seed))
    return BestOfNResults(len(judged), min(counts), max(counts), tuple(rows))


def _row(
    vote: str, reward: str, judged: Sequence[JudgedCandidates], rule: RightShare, sizes: Sequence[int], seed: int
) -> VoteAccuracy:
    by_size = {size: Share.of(accuracies(judged, size, rule, seed)) for size in sizes}
    return VoteAccuracy(vote, reward, by_size, Share.of(outcomes(judged, rule).tolist()))


def outcomes(judged: Sequence[JudgedCandidates], rule: RightShare) -> Numbers:
    return np.array([rule(candidates, range(len(candidates.classes))) for candidates in judged], dtype=float)


def accuracies(judged: Sequence[JudgedCandidates], size: int, rule: RightShare, seed: int = 0) -> list[float]:
    """For each question, the mean of `rule` over draws of `size` of its candidates."""
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


def _any_right(judged: JudgedCandidates, picks: Sequence[int]) -> float:
    return float(any(judged.correct[k] for k in picks))


def markdown(measured: BestOfNResults) -> str:
    fewest, most = measured.candidates, measured.most_candidates
    counts = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    sizes = measured.rows[0].by_size
    same = most in sizes  # equally many for every question, and a measured N
    columns = ["vote", "reward", *(f"N = {size}" + " (mean@1)" * (size == 1) for size in sizes)]
    rows = []
    for row in measured.rows:
        shares = [*row.by_size.values()] if same else [*row.by_size.values(), row.of_all]
        against = ""
        if row.against_majority is not None and row.p is not None:
            against = f"{points(row.against_majority)}, {shown(row.p)}"
        rows.append([row.vote, row.reward, *(share.in_percent for share in shares), against])
    columns += ["against majority, points"] if same else [f"all {counts}", "against majority, points"]
    title = f"Right answers in % (95 % interval), {measured.questions} questions with {counts} candidates each;"
    note = "differences among all, p corrected for all of them (Holm):"
    return f"{title} {note}\n\n{in_markdown(columns, rows)}"
