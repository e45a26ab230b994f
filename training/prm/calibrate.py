"""Platt calibration of a PRM: a calibrated step score is the probability that such a step is right.

The calibrated scores of an ensemble's models are averaged; a single model returns its raw scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from rich.progress import Progress
from sklearn.linear_model import LogisticRegression

from unprm.calibration import Calibration, log_odds
from unprm.errors import RecordInvalid
from unprm.types import Solution

from ..evaluate.metrics import Validation
from ..evaluate.scorers import Scorer
from ..layouts.files import read_labelled
from ..schema import VERDICT

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
    scores, labels = [], []
    for start in progress.track(range(0, len(solutions), BATCH), description="scoring"):
        batch = solutions[start : start + BATCH]
        scored = scorer.score([Solution(s.steps, problem=s.problem) for s in batch])
        for solution, step_scores in zip(batch, scored, strict=True):
            if step_scores is not None:
                scores.append([step_scores[step] for step in solution.known])
                labels.append([label > VERDICT for label in solution.known.values()])
    if len(set(chain.from_iterable(labels))) < 2:
        raise RecordInvalid(str(data), 0, "calibration takes right steps and wrong ones")
    calibration = fit(scores, labels)
    after = [tuple(calibration(score) for score in values) for values in scores]
    return Calibrated(calibration, sum(map(len, labels)), Validation.of(scores, labels), Validation.of(after, labels))


def fit(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[bool]]) -> Calibration:
    """Platt scaling: logistic regression of labels on the scores' log-odds, without regularisation. Scores are clipped
    to [EDGE, 1 - EDGE]. Both labels must occur."""
    odds = [[log_odds(score)] for score in chain.from_iterable(scores)]
    fitted = LogisticRegression(C=np.inf, tol=1e-8).fit(odds, list(chain.from_iterable(labels)))
    return Calibration(float(fitted.coef_[0, 0]), float(fitted.intercept_[0]))
