"""Coverage against risk: how many elected answers are accepted, and how many of those are wrong, on questions that had
no part in the calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training import resumable
from training.evaluate.acceptance import elections
from training.evaluate.records import JudgedCandidates
from training.evaluate.right_votes import takeable
from unprm.election.acceptance import CONFIDENCE, Election, threshold
from unprm.votes.registry import Strategy

from .searches.findings import table

SPLITS = 200
"""Ways to cut the questions into halves: one calibrates, the other judges."""
RISKS = (0.02, 0.05, 0.1, 0.2)
COLUMNS = (
    "judged on",
    "calibrated on",
    "vote",
    "wrong of all",
    "risk",
    "accepted",
    "wrong of accepted",
    "above the risk",
)

Pool = Sequence[JudgedCandidates]


@dataclass(frozen=True, slots=True)
class Coverage:
    """At one risk, over the splits. `accepted`: mean share of the questions; `wrong`: share of the accepted answers
    that are wrong, over all splits; `above`: share of the splits in which that share is above the risk by more than
    chance allows for as many answers (a binomial test at 5 %)."""

    accepted: float
    wrong: float
    above: float


def halves(elections: Sequence[Election], risk: float) -> Coverage:
    """Calibrates on one half of the elections and judges on the other, `SPLITS` times."""
    rng, count = np.random.default_rng(0), len(elections)
    orders = [rng.permutation(count) for _ in range(SPLITS)]
    half = count // 2
    return _over([(_taken(elections, order[:half]), _taken(elections, order[half:])) for order in orders], risk)


def transferred(calibrated: Sequence[Election], judged: Sequence[Election], risk: float) -> Coverage:
    """Calibrates on one pool and judges on another, by halves of both, so that sizes are those of `halves`."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(SPLITS):
        first, second = (rng.permutation(len(pool))[: len(pool) // 2] for pool in (calibrated, judged))
        pairs.append((_taken(calibrated, first), _taken(judged, second)))
    return _over(pairs, risk)


def _taken(elections: Sequence[Election], places: npt.NDArray[np.int64]) -> list[Election]:
    return [elections[place] for place in places]


def _over(pairs: Sequence[tuple[Sequence[Election], Sequence[Election]]], risk: float) -> Coverage:
    from scipy.stats import binom

    accepted = wrong = questions = above = 0
    for calibrating, judging in pairs:
        lowest = threshold(calibrating, risk, CONFIDENCE)
        rights = [right for value, right in judging if lowest is not None and value >= lowest]
        errors = rights.count(False)
        accepted, wrong, questions = accepted + len(rights), wrong + errors, questions + len(judging)
        above += bool(rights) and bool(binom.sf(errors - 1, len(rights), risk) < 0.05)
    return Coverage(accepted / questions, wrong / accepted if accepted else 0.0, above / len(pairs))


def measure(pools: Mapping[str, Pool]) -> list[list[str]]:
    """The rows of `COLUMNS`: each pool judged by its own other half, and by every other pool."""
    made: dict[str, dict[Strategy, list[Election]]] = {
        name: {strategy: elections(pool, strategy) for strategy in takeable(pool)} for name, pool in pools.items()
    }
    rows = []
    for judged, votes in made.items():
        for calibrated, others in made.items():
            for strategy, found in votes.items():
                if strategy not in others:
                    continue
                wrong = sum(not right for _, right in found) / len(found)
                for risk in RISKS:
                    same_pool = calibrated == judged
                    one = halves(found, risk) if same_pool else transferred(others[strategy], found, risk)
                    shown = (one.accepted, one.wrong, one.above)
                    rows.append([judged, calibrated, strategy, f"{100 * wrong:.1f}", f"{100 * risk:g}",
                                 *(f"{100 * share:.1f}" for share in shown)])  # fmt: skip
    return rows


def write(pools: Mapping[str, Pool], output: Path) -> str:
    """Writes the table `coverage.md` to a directory; returns it."""
    output.mkdir(parents=True, exist_ok=True)
    made = table(COLUMNS, measure(pools))
    resumable.replace(output / "coverage.md", made)
    return made
