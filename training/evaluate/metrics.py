"""Quality metrics of a PRM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from unprm import steps

BINS = 15


@dataclass(frozen=True, slots=True)
class FirstErrorScore:
    """ProcessBench's measure: how often the first wrong step is found; all in [0, 1].

    `erroneous`: share of the wrong solutions whose first wrong step was named exactly; `correct`: share of the
    right ones in which no step was called wrong; `f1`: their harmonic mean.
    """

    erroneous: float
    correct: float

    @property
    def f1(self) -> float:
        total = self.erroneous + self.correct
        return 2 * self.erroneous * self.correct / total if total else 0.0


def first_error_score(predicted: Sequence[int | None], actual: Sequence[int | None]) -> FirstErrorScore:
    """Compares predicted first errors (None: none) with the actual ones; both kinds must occur."""
    pairs = list(zip(predicted, actual, strict=True))
    erroneous = [guess == truth for guess, truth in pairs if truth is not None]
    correct = [guess is None for guess, truth in pairs if truth is None]
    if not erroneous or not correct:
        raise ValueError(f"{len(erroneous)} wrong and {len(correct)} right solutions: both kinds are needed")
    return FirstErrorScore(sum(erroneous) / len(erroneous), sum(correct) / len(correct))


@dataclass(frozen=True, slots=True)
class Share:
    """A mean of shares in [0, 1], or of differences of shares, with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean of independent values."""
        array = np.asarray(values, dtype=float)
        picks = np.random.default_rng(0).integers(0, len(array), (2000, len(array)))
        low, high = np.quantile(array[picks].mean(axis=1), [0.025, 0.975])
        return cls(sum(values) / len(values), float(low), float(high))

    @property
    def in_percent(self) -> str:
        """As text, in percent: `86.7 (84.1–89.0)`."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f}–{100 * self.high:.1f})"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass(frozen=True, slots=True)
class Validation:
    """How the scores of labelled steps fit their labels; all in [0, 1].

    `auroc`: that a right step scores above a wrong one. `accuracy`: of the verdicts at 0.5. `calibration_error`:
    expected calibration error over `BINS` equal bins. `f1`: of the first error. None where only right or only wrong
    ones are there.
    """

    auroc: float | None
    accuracy: float
    calibration_error: float
    f1: float | None

    @classmethod
    def of(cls, scores: Sequence[Sequence[float]], labels: Sequence[Sequence[bool]]) -> Self:
        """Of solutions' step scores and labels; at least one step."""
        from sklearn.metrics import roc_auc_score  # only validation needs it, and a bare machine lacks it

        values = np.array([score for step_scores in scores for score in step_scores])
        right = np.array([label for step_labels in labels for label in step_labels], dtype=bool)
        actual = [next((k for k, label in enumerate(step_labels) if not label), None) for step_labels in labels]
        both = len(set(right.tolist())) == 2
        first = [steps.first_error(step_scores) for step_scores in scores]
        kinds = {label is None for label in actual}
        return cls(
            auroc=float(roc_auc_score(right, values)) if both else None,
            accuracy=float(np.mean((values >= 0.5) == right)),
            calibration_error=_calibration_error(values, right),
            f1=first_error_score(first, actual).f1 if len(kinds) == 2 else None,
        )


def _calibration_error(scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> float:
    """Mean distance of a bin's mean score from its share of right steps, weighted by the bin's size."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = [abs(scores[bins == b].sum() - right[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(scores))
