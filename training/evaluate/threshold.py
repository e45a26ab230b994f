"""Below which score is a step an error? A threshold for a PRM from a few labelled solutions, traces, of one's own.

It is the median of those with the best F1 of first errors on resampled traces, as F1 on few traces is noisy. What it
gains is measured on tenths of the traces by thresholds from the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unprm.errors import RecordInvalid

from ..layouts.files import read_labelled
from ..schema import VERDICT, LabelledSolution, Scores
from .metrics import Numbers, Share, points
from .processbench import GRID, THRESHOLD, prediction

FEWEST, FOLDS, RESAMPLES = 20, 10, 400


@dataclass(frozen=True, slots=True)
class ChosenThreshold:
    """`before`: F1 at 0.5, in [0, 1]; `gain`: how much higher it is at thresholds from other traces, with its 90 %
    interval."""

    threshold: float
    traces: int
    before: float
    gain: Share

    def __str__(self) -> str:
        return (
            f"threshold {self.threshold:.2f}, from {self.traces} traces: F1 of first errors {100 * self.before:.1f} % "
            f"at {THRESHOLD:g}, {points(self.gain)} points by thresholds from other traces (90 % interval)"
        )


def read_traces(data: Path) -> list[tuple[LabelledSolution, int | None]]:
    """The labelled solutions with the indices of their first errors, None where all steps are right, without those that
    lack labels up to there."""
    found = []
    for solution in read_labelled([data]):
        wrong = [k for k, label in enumerate(solution.labels) if label is not None and label <= VERDICT]
        first = wrong[0] if wrong else None
        if None not in solution.labels[:first]:
            found.append((solution, first))
    return found


def choose(first_errors: Sequence[int | None], scores: Sequence[Scores], seed: int = 0) -> ChosenThreshold:
    """The threshold for traces with these first errors and step scores. Raises `RecordInvalid` for fewer than `FEWEST`,
    and unless a tenth of them each has an error and has none."""
    wrong = np.array([first is not None for first in first_errors])
    count, rng = len(wrong), np.random.default_rng(seed)
    if count < FEWEST or min(wrong.sum(), (~wrong).sum()) < count / 10:
        reason = f"a threshold takes {FEWEST} traces, a tenth of them with an error and a tenth without"
        raise RecordInvalid("traces", 0, f"{reason}: there are {count}, {wrong.sum()} with an error")
    pairs = list(zip(scores, first_errors, strict=True))
    found = np.array([[prediction(values, level) == first for values, first in pairs] for level in GRID], dtype=float)
    weights = rng.multinomial(count, [1 / count] * count, RESAMPLES).astype(float)
    order = np.lexsort((rng.random(count), wrong))
    folds = np.empty(count, dtype=int)
    folds[order] = np.arange(count) % FOLDS

    def best(weights: Numbers) -> int:
        return int(np.median(_f1(found, wrong, weights).argmax(axis=1)))

    held_out = np.empty(count)
    for fold in range(FOLDS):
        held_out[folds == fold] = found[best(weights * (folds != fold)), folds == fold]
    both = np.stack([found[GRID.index(THRESHOLD)], held_out])
    before, after = _f1(both, wrong, np.ones((1, count)))[0]
    at_fixed, at_chosen = _f1(both, wrong, weights).T
    low, high = np.quantile(at_chosen - at_fixed, [0.05, 0.95])
    gain = Share(float(after - before), float(low), float(high))
    return ChosenThreshold(GRID[best(weights)], count, float(before), gain)


def _f1(found: Numbers, wrong: npt.NDArray[np.bool_], weights: Numbers) -> Numbers:
    """F1 of first errors on resampled traces, (resamples, thresholds). `found`: whether each trace's is found at each
    threshold, (thresholds, traces); `wrong`: (traces,); `weights`: (resamples, traces)."""
    shares = []
    for kind in (wrong, ~wrong):
        taken = weights * kind
        shares.append(taken @ found.T / np.maximum(taken.sum(axis=1, keepdims=True), 1))
    made: Numbers = 2 * shares[0] * shares[1] / np.maximum(sum(shares), 1e-12)
    return made
