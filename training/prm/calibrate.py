"""What is fitted to a PRM's scores of labelled solutions: a calibration, and a threshold.

By Platt's calibration a step score is the probability that such a step is right. The calibrated scores of an ensemble's
models are averaged; a single model returns its raw scores.

A step that scores below the threshold is an error. It is the median of those with the best F1 of first errors on
resampled traces, as F1 on few traces is noisy. What it gains is measured on tenths of the traces by thresholds from the
others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.progress import Progress
from sklearn.linear_model import LogisticRegression

from unprm.calibration import Calibration, log_odds
from unprm.errors import RecordInvalid
from unprm.types import Solution

from ..evaluate.metrics import Numbers, Share, Validation, points
from ..evaluate.processbench import GRID, THRESHOLD, prediction
from ..evaluate.scorers import Scorer
from ..layouts.files import read_labelled
from ..schema import VERDICT, LabelledSolution, Scores

BATCH = 64
"""Solutions scored between two updates of the progress display."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A fitted calibration, the number of steps it was fitted to, and validation figures before and after it."""

    calibration: Calibration
    steps: int
    before: Validation
    after: Validation


def calibrate(scorer: Scorer, data: Path, progress: Progress) -> Calibrated:
    """Fits the calibration to the labelled steps of solutions; those too long for the model's window are left out.

    Raises `RecordInvalid` unless there are both right and wrong steps.
    """
    solutions = list(read_labelled([data]))
    scored = [(s.known, k) for s, k in zip(solutions, score(scorer, solutions, progress), strict=True) if k is not None]
    scores = [[step_scores[step] for step in known] for known, step_scores in scored]
    labels = [[label > VERDICT for label in known.values()] for known, _ in scored]
    if len(set(chain.from_iterable(labels))) < 2:
        raise RecordInvalid(str(data), 0, "calibration takes right steps and wrong ones")
    calibration = fit(scores, labels)
    after = [tuple(calibration(score) for score in values) for values in scores]
    return Calibrated(calibration, sum(map(len, labels)), Validation.of(scores, labels), Validation.of(after, labels))


def score(scorer: Scorer, solutions: Sequence[LabelledSolution], progress: Progress) -> list[Scores]:
    """Step scores of each solution."""
    asked = [Solution(each.steps, problem=each.problem) for each in solutions]
    starts = progress.track(range(0, len(asked), BATCH), description="scoring")
    return [scores for start in starts for scores in scorer.score(asked[start : start + BATCH])]


def fit(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[bool]]) -> Calibration:
    """Platt scaling: logistic regression of labels on the scores' log-odds, without regularisation. Scores are clipped
    to [EDGE, 1 - EDGE]. Both labels must occur."""
    odds = [[log_odds(score)] for score in chain.from_iterable(scores)]
    fitted = LogisticRegression(C=np.inf, tol=1e-8).fit(odds, list(chain.from_iterable(labels)))
    return Calibration(float(fitted.coef_[0, 0]), float(fitted.intercept_[0]))


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
        first = next((step for step, label in solution.known.items() if label <= VERDICT), None)
        if None not in solution.labels[:first]:
            found.append((solution, first))
    return found


def choose_threshold(first_errors: Sequence[int | None], scores: Sequence[Scores], seed: int = 0) -> ChosenThreshold:
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
