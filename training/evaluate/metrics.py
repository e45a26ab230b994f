"""Quality metrics of a PRM, and tables of them."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from unprm import steps

BINS = 15


Z = float(ndtri(0.975))
"""Deviations of the normal distribution that 95 % are within."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share in [0, 1], or a difference of shares, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean of independent values in [0, 1]."""
        return cls.wilson(float(np.mean(values)), float(np.var(values)) / len(values), len(values))

    @classmethod
    def wilson(cls, share: float, variance: float, count: float) -> Self:
        """A share with Wilson's interval (1927), which has a width even at 0 and at 1. `variance`: of the estimated
        share, p(1 − p)/n for outcomes that are 0 or 1; `count`: of the outcomes."""
        centre = (count * share + Z * Z / 2) / (count + Z * Z)
        half = Z * math.sqrt(count * count * variance + Z * Z / 4) / (count + Z * Z)
        return cls(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))

    @property
    def in_percent(self) -> str:
        """As text, in percent: `86.7 (84.1–89.0)`."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f}–{100 * self.high:.1f})"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass(frozen=True, slots=True)
class FirstErrorFigures:
    """ProcessBench's measure, how often the first wrong step is found; shares in [0, 1].

    `erroneous`: share of the `wrong` solutions whose first wrong step was named exactly; `correct`: share of the
    `right` ones in which no step was called wrong; `f1`: their harmonic mean, with the ends of its interval.
    `too_long`: solutions that do not fit the model's window; their predictions count as wrong.
    """

    erroneous: float
    correct: float
    f1: float
    f1_low: float
    f1_high: float
    wrong: int
    right: int
    too_long: int = 0

    @classmethod
    def of(cls, predicted: Sequence[int | None], actual: Sequence[int | None], too_long: int = 0) -> Self:
        """Of predicted first errors (None: none) and the actual ones; both kinds must occur (`ValueError`). The
        interval's variance is that of the delta method, of as many outcomes as have it where both shares are equal."""
        pairs = list(zip(predicted, actual, strict=True))
        named = [guess == truth for guess, truth in pairs if truth is not None]
        spared = [guess is None for guess, truth in pairs if truth is None]
        if not named or not spared:
            raise ValueError(f"{len(named)} wrong and {len(spared)} right solutions: both kinds are needed")
        first, second = fmean(named), fmean(spared)
        total = first + second or 1.0
        parts = second**4 * first * (1 - first) / len(named), first**4 * second * (1 - second) / len(spared)
        count = 4 / (1 / len(named) + 1 / len(spared))
        f1 = Share.wilson(2 * first * second / total, 4 * sum(parts) / total**4, count)
        return cls(first, second, f1.mean, f1.low, f1.high, len(named), len(spared), too_long)

    @property
    def f1_share(self) -> Share:
        return Share(self.f1, self.f1_low, self.f1_high)


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

    def __str__(self) -> str:
        auroc = "" if self.auroc is None else f"AUROC {self.auroc:.3f}, "
        return f"{auroc}accuracy {self.accuracy:.3f}, calibration error {self.calibration_error:.3f}"

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
            f1=FirstErrorFigures.of(first, actual).f1 if len(kinds) == 2 else None,
        )


def _calibration_error(scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> float:
    """Mean distance of a bin's mean score from its share of right steps, weighted by the bin's size."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = [abs(scores[bins == b].sum() - right[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(scores))


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], names: int = 2) -> str:
    """A table whose first columns are `names`, and whose other cells are aligned right."""
    lines = [columns, [*["---"] * names, *["--:"] * (len(columns) - names)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def read_published(benchmark: str) -> dict[str, tuple[float, ...]]:
    """Published figures of a benchmark in percent, by PRM."""
    figures = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))[benchmark]
    return {name: tuple(row) for name, row in figures.items()}
