"""Coverage against risk: how many elected answers are accepted, and how many of those are wrong, on questions that had
no part in the calibration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from rich.console import Console

from training import resumable, sources
from training.evaluate import judging
from training.evaluate.acceptance import elections
from training.evaluate.best_of_n import takeable
from training.evaluate.judging import JudgedCandidates
from training.evaluate.metrics import Numbers, Share, in_markdown
from training.evaluate.pool import CandidatePool
from unprm.election.acceptance import CONFIDENCE, JudgedElection, Statistics, threshold
from unprm.votes.registry import VOTES, Strategy

SPLITS = 200
"""Ways to cut the questions into halves: one calibrates, the other judges."""
RISKS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
COLUMNS = (
    "judged on",
    "calibrated on",
    "vote",
    "wrong of all",
    "risk",
    "accepted",
    "wrong of accepted (95 % of splits)",
    "above the risk",
    "outside",
)


@dataclass(frozen=True, slots=True)
class VoteElections:
    """A vote's elections on a pool: certainties and whether the answers are right, (questions,), and the candidates'
    statistics, (questions, statistics), NaN for those that are not there."""

    certainty: Numbers
    right: npt.NDArray[np.bool_]
    statistics: Numbers

    @classmethod
    def of(cls, pool: Sequence[JudgedCandidates], strategy: Strategy) -> Self:
        """Of a pool in which every question has an answer; without those that the vote can't elect one of."""
        rewarded = VOTES[strategy].signal == "reward"
        taken = [
            (election, Statistics.from_candidates(each.classes, each.rewards if rewarded else None))
            for each in pool
            for election in elections([each], strategy)
        ]
        statistics = [list(asdict(each).values()) for _, each in taken]
        return cls.from_elections([election for election, _ in taken], statistics)

    @classmethod
    def from_elections(cls, elections: Sequence[JudgedElection], statistics: Sequence[Sequence[float | None]]) -> Self:
        return cls(
            np.array([value for value, _ in elections]),
            np.array([right for _, right in elections]),
            np.array([[np.nan if value is None else value for value in row] for row in statistics]),
        )

    def at(self, places: npt.NDArray[np.int64]) -> "VoteElections":
        return VoteElections(self.certainty[places], self.right[places], self.statistics[places])

    def accepts(self, other: "VoteElections", risk: float) -> npt.NDArray[np.bool_]:
        """Which answers of the other are accepted by a calibration on this, whatever their candidates."""
        lowest = threshold(zip(self.certainty.tolist(), self.right.tolist(), strict=True), risk, CONFIDENCE)
        return np.zeros(len(other.right), bool) if lowest is None else other.certainty >= lowest

    def covers(self, other: "VoteElections") -> npt.NDArray[np.bool_]:
        """Which questions of the other have candidates within the ranges of this."""
        low = np.fmin.reduce(self.statistics, axis=0)
        high = np.fmax.reduce(self.statistics, axis=0)
        # what is not known of either does not count: no comparison with NaN holds
        return np.asarray(~((other.statistics < low) | (other.statistics > high)).any(axis=1))


@dataclass(frozen=True, slots=True)
class Coverage:
    """At one risk, over the splits. `accepted`: mean share of the questions; `wrong`: share of the accepted answers
    that are wrong, over all splits, and between which it is in 95 % of the splits with any; `above`: share of the
    splits in which it is above the risk by more than chance allows for as many answers (a binomial test at 5 %);
    `outside`: mean share of the questions whose candidates lie outside the calibration's ranges."""

    accepted: float
    wrong: Share
    above: float
    outside: float


def measure(calibrated: VoteElections, judged: VoteElections, risk: float, seed: int = 0) -> Coverage:
    """Calibrates on one half of a pool and judges on the other, `SPLITS` times; on a half of another pool if `judged`
    is one, so that sizes stay the same."""
    from scipy.stats import binom

    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(SPLITS):
        order = rng.permutation(len(calibrated.right))
        first, second = np.split(order, [len(order) // 2])
        if judged is not calibrated:
            second = rng.permutation(len(judged.right))[: len(judged.right) // 2]
        known, held_out = calibrated.at(first), judged.at(second)
        within = known.covers(held_out)
        accepted = known.accepts(held_out, risk) & within
        wrong, count = int((accepted & ~held_out.right).sum()), int(accepted.sum())
        above = bool(count) and bool(binom.sf(wrong - 1, count, risk) < 0.05)
        rows.append((len(second), count, wrong, above, (~within).sum()))
    questions, count, wrong, above, outside = np.array(rows, float).sum(axis=0)
    shares = [each[2] / each[1] for each in rows if each[1]] or [0.0]
    low, high = np.quantile(shares, (0.025, 0.975))
    return Coverage(
        accepted=count / questions,
        wrong=Share(wrong / count if count else 0.0, float(low), float(high)),
        above=above / SPLITS,
        outside=outside / questions,
    )


def judged_pool(path: Path, output: Path, console: Console, candidates: int | None) -> list[JudgedCandidates]:
    """The questions with an answer of a directory that `evaluate best-of-n` wrote, or of a file as `of_models` reads
    it, whose judgement is kept in `output`. `candidates`: as many of each question, drawn with a seed."""
    if path.is_dir():
        judged = judging.read_judged(path)
    else:
        judged = judging.judge(of_models(path), None, output / name_of(path), console)
    if candidates is not None:
        rng = np.random.default_rng(0)
        judged = [_picked(each, sorted(rng.permutation(len(each.classes))[:candidates].tolist())) for each in judged]
    return [each for each in judged if any(name is not None for name in each.classes)]


def _picked(judged: JudgedCandidates, picks: Sequence[int]) -> JudgedCandidates:
    """These candidates (indices), in this order, without their step scores and confidences."""
    classes, correct = tuple(judged.classes[k] for k in picks), tuple(judged.correct[k] for k in picks)
    return JudgedCandidates(judged.id, classes, correct, tuple(judged.rewards[k] for k in picks))


def of_models(path: Path) -> list[CandidatePool]:
    """The questions of a file, JSON lines with one answer of each of many models: `id`, `problem`, `answer`, and
    `candidates` with `text` and its final answer `pred`. No rewards."""
    made = []
    for row in sources.read(path, dict[str, Any]):
        texts = tuple(f"{each['text']}\n\nThe answer is \\boxed{{{each['pred']}}}." for each in row["candidates"])
        made.append(CandidatePool(row["id"], row["problem"], row["answer"], texts, (None,) * len(texts)))
    return made


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _rows(pools: Mapping[str, Sequence[JudgedCandidates]]) -> Iterator[list[str]]:
    """The rows of `COLUMNS`: each pool judged by its own other half, and by every other pool."""
    made = {name: {vote: VoteElections.of(pool, vote) for vote in takeable(pool)} for name, pool in pools.items()}
    for judged, votes in made.items():
        for calibrated, others in made.items():
            for strategy in [each for each in votes if each in others]:
                about = [judged, calibrated, strategy, _in_percent(1 - votes[strategy].right.mean())]
                for risk in RISKS:
                    one = measure(others[strategy], votes[strategy], risk)
                    wrong = one.wrong.in_percent if one.accepted else "–"
                    found = [_in_percent(one.accepted), wrong, _in_percent(one.above), _in_percent(one.outside)]
                    yield [*about, f"{100 * risk:g}", *found]


def _in_percent(share: float) -> str:
    return f"{100 * share:.1f}"


def write(pools: Mapping[str, Sequence[JudgedCandidates]], output: Path) -> str:
    """Writes the table `coverage.md` to a directory; returns it."""
    made = in_markdown(COLUMNS, list(_rows(pools)), names=3)
    resumable.replace(output / "coverage.md", made)
    return made
