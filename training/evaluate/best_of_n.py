"""Best-of-N: how often each vote elects a right answer among N candidate solutions.

Each question has a fixed set of candidates; votes at N are taken on seeded draws of N of them without replacement, or
on all subsets of size N if these are few. A question's accuracy is the mean over its draws, and the interval is over
questions (paper, section 6). If candidates have step scores, votes are taken with each aggregate of them as reward.
Answers are read and compared once, among all of a question's candidates.
"""

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from unprm.votes.registry import VoteTerms
from unprm.votes.wrf import WrfTerms

from .. import resumable
from ..schema import adapter
from ..stage_settings import AUTO, ReadingSettings
from .bootstrap import Estimate, Numbers, compare
from .judging import GIVEN, JudgedCandidates, judge
from .metrics import Share
from .pool import CandidatePool
from .right_votes import RightShare, right_share, takeable, uses_rewards
from .scorers import Scorer
from .vote_results import AGGREGATES, ANY_RIGHT, NO_REWARD, BestOfNResults, VoteAccuracy, first_reward, markdown

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WRF = WrfTerms()
"""The paper's settings."""
DRAWS = 16
"""Draws per question and N, if there are more subsets of N candidates."""


def evaluate(
    questions: Sequence[CandidatePool],
    scorer: Scorer | None,
    output: Path,
    console: Console,
    wrf: WrfTerms = WRF,
    seed: int = 0,
    reading: ReadingSettings = AUTO,
) -> BestOfNResults:
    """Judges and scores the candidates, takes the votes, and writes `output/results.json` and `output/votes.md`, the
    same as a table. Arguments as for `judge` and `results`."""
    measured = results(judge(questions, scorer, output, console, reading), wrf, seed)
    accuracy = adapter(dict[str, dict[int, Share]]).dump_python(measured.accuracy, mode="json")
    record = {"model": scorer.identity.model if scorer else GIVEN, **dict(wrf), "seed": seed}
    record |= {"any_right": accuracy.pop(ANY_RIGHT), "accuracy": accuracy, **asdict(measured)}
    resumable.replace(output / "votes.md", markdown(measured))
    resumable.replace(output / "results.json", json.dumps(record, indent=2) + "\n")
    return measured


def results(judged: Sequence[JudgedCandidates], wrf: WrfTerms = WRF, seed: int = 0) -> BestOfNResults:
    """Takes all votes at all N for which every question has enough candidates, and over all candidates, with each
    aggregate of the step scores as reward."""
    counts = [len(candidates.classes) for candidates in judged]
    sizes = [size for size in SIZES if size <= min(counts)]
    rules = {name: partial(right_share, name, terms=VoteTerms(**dict(wrf))) for name in takeable(judged)}
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
    """What the rule gives for each question among all of its candidates, (questions,)."""
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
