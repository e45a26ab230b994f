"""Results of best-of-N: how often votes are right, with their table."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from unprm.types import Aggregate

from .bootstrap import points, shown
from .metrics import Share

AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
"""The paper's first."""
NO_REWARD = "–"
"""In place of the reward's name, for a vote that uses none."""
ANY_RIGHT = "any right"
"""In place of a vote: whether any candidate is right."""


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
    """The name of the rewards in `Results.accuracy`."""
    return AGGREGATES[0] if step_scores else "given"


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


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], names: int = 2) -> str:
    """A table whose first columns are `names`, and whose other cells are aligned right."""
    lines = [columns, [*["---"] * names, *["--:"] * (len(columns) - names)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def read_published(benchmark: str) -> dict[str, tuple[float, ...]]:
    """Published figures of a benchmark in percent, by PRM."""
    figures = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))[benchmark]
    return {name: tuple(row) for name, row in figures.items()}
