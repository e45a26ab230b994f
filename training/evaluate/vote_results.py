"""Results of best-of-N: how often votes are right, with their table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, get_args

from unprm.types import Aggregate
from unprm.votes.registry import Strategy

from .bootstrap import Comparison, points, shown
from .metrics import Share
from .right_votes import uses_rewards

AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
"""The paper's first."""
NO_REWARD = "–"
"""In place of the reward's name, for a vote that uses none."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often votes are right: `accuracy[vote][N]` among N candidates, `accuracy_of_all[vote]` among all of a
    question's candidates."""

    accuracy: dict[Strategy, dict[int, Share]]
    accuracy_of_all: dict[Strategy, Share]


@dataclass(frozen=True, slots=True)
class Difference:
    """A vote's accuracy minus that of majority on the same questions, among all candidates, in [-1, 1], with its 95 %
    interval over the questions; and the p-value against no difference, corrected for all differences reported
    (Holm)."""

    difference: Share
    p: float

    @classmethod
    def of(cls, comparison: Comparison) -> Self:
        """The difference of a comparison."""
        return cls(comparison.difference.interval(), comparison.p)


@dataclass(frozen=True, slots=True)
class Results:
    """`accuracy` and `accuracy_of_all` as in `Accuracy`, for all votes, with the given rewards or the minimum of the
    step scores.

    `candidates`, `most_candidates`: smallest and largest number of candidates of a question. `any_right[N]`: share of
    questions with at least one right answer among N candidates; `any_right_of_all`: among all. `aggregates`: accuracy
    of the votes that use rewards, with the other aggregates of step scores; empty if rewards were given as numbers.
    `against_majority[vote][reward]`: for all votes but majority; `NO_REWARD` for those that use none.
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


def first_reward(step_scores: bool) -> str:
    """The name of the rewards in `Results.accuracy`."""
    return AGGREGATES[0] if step_scores else "given"


def markdown(measured: Results) -> str:
    """Accuracy in percent by vote, reward and N in Markdown, with the differences from majority."""
    columns, rows = _cells(measured)
    columns.append("against majority, points")
    for row in rows:
        against = measured.against_majority.get(row[0], {}).get(row[1])
        row.append(f"{points(against.difference)}, {shown(against.p)}" if against else "")
    counts = f"{measured.questions} questions with {_counts(measured)} candidates each"
    title = f"Right answers in % (95 % interval), {counts}; differences among all, p corrected for all of them (Holm):"
    return f"{title}\n\n{in_markdown(columns, rows)}"


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], names: int = 2) -> str:
    """A table whose first columns are `names`, and whose other cells are aligned right."""
    lines = [columns, [*["---"] * names, *["--:"] * (len(columns) - names)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _cells(measured: Results) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: one row per vote, or per vote and reward if the vote uses rewards."""
    first = first_reward(bool(measured.aggregates))
    rewards: list[tuple[str, Results | Accuracy]] = [(first, measured), *measured.aggregates.items()]
    same = measured.most_candidates in measured.any_right  # equally many for every question, and a measured N

    def row(vote: str, reward: str, by_size: Mapping[int, Share], of_all: Share) -> list[str]:
        shares = [*by_size.values()] if same else [*by_size.values(), of_all]
        return [vote, reward, *(share.in_percent for share in shares)]

    rows = [
        row(vote, reward if uses_rewards(vote) else NO_REWARD, figures.accuracy[vote], figures.accuracy_of_all[vote])
        for vote in measured.accuracy
        for reward, figures in rewards
        if vote in figures.accuracy
    ]
    rows.append(row("any right", NO_REWARD, measured.any_right, measured.any_right_of_all))
    sizes = [f"N = {size}" + " (mean@1)" * (size == 1) for size in measured.any_right]
    return ["vote", "reward", *sizes, *([] if same else [f"all {_counts(measured)}"])], rows


def _counts(measured: Results) -> str:
    fewest, most = measured.candidates, measured.most_candidates
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"
