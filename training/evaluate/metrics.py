"""Quality metrics of a PRM, and tables of them."""

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Self, TypeVar

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

        values, right = np.concatenate([*scores]), np.concatenate([*labels]).astype(bool)
        first, actual = ([steps.first_error(each) for each in of_steps] for of_steps in (scores, labels))
        return cls(
            auroc=float(roc_auc_score(right, values)) if 0 < right.sum() < len(right) else None,
            accuracy=float(np.mean((values >= 0.5) == right)),
            calibration_error=_calibration_error(values, right),
            f1=FirstErrorFigures.of(first, actual).f1 if 0 < actual.count(None) < len(actual) else None,
        )


def _calibration_error(scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> float:
    """Mean distance of a bin's mean score from its share of right steps, weighted by the bin's size."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, scores - right)).sum() / len(scores))


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], names: int = 2) -> str:
    """A table whose first columns are `names`, and whose other cells are aligned right."""
    lines = [columns, [*["---"] * names, *["--:"] * (len(columns) - names)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def read_published(benchmark: str) -> dict[str, tuple[float, ...]]:
    figures = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))[benchmark]
    return {name: tuple(row) for name, row in figures.items()}


RESAMPLES = 10_000
"""The smallest p-value is 1 / 10,001: enough for families of a few hundred comparisons."""
FEWEST = 10
"""Minimum number of questions for a comparison: fewer say nothing about other questions."""
ROUNDING = 1e-12
"""Smaller differences count as rounding errors."""

Numbers = npt.NDArray[np.floating]
Key = TypeVar("Key", bound=Hashable)


@lru_cache(maxsize=8)
def weights(questions: int) -> Numbers:
    """How often each resample contains each question, (RESAMPLES, questions). The same at every call, so that estimates
    over the same questions are paired."""
    made: Numbers = (
        np.random.default_rng(0).multinomial(questions, [1 / questions] * questions, RESAMPLES).astype(float)
    )
    made.flags.writeable = False
    return made


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, or a difference of two figures. `resampled`, (RESAMPLES,): the figure on resampled questions.
    `questions`: number of questions that contribute."""

    value: float
    resampled: Numbers
    questions: int

    @classmethod
    def ratio(cls, hits: Numbers, counts: Numbers) -> Self:
        """Sum of `hits` over the sum of `counts`, (questions,) each; 0 if the counts are 0."""
        taken = weights(len(counts))
        return cls(
            float(_divided(hits.sum(), counts.sum())),
            _divided(taken @ hits, taken @ counts),
            int((counts > 0).sum()),
        )

    @classmethod
    def mean(cls, outcomes: Numbers) -> Self:
        return cls.ratio(outcomes, np.ones(len(outcomes)))

    def __sub__(self, other: Self) -> Self:
        """The difference from an estimate over the same questions."""
        questions = min(self.questions, other.questions)
        return type(self)(self.value - other.value, self.resampled - other.resampled, questions)

    def deviations(self) -> Numbers:
        return self.resampled - self.value

    def interval(self, level: float = 0.95) -> Share:
        """The value with its interval. The interval is symmetric: if few questions make up the whole difference,
        resamples reach less far towards zero than away from it (Hall, 1988)."""
        half = float(np.quantile(np.abs(self.deviations()), level))
        return Share(self.value, self.value - half, self.value + half)

    @property
    def share(self) -> Share:
        return Share.wilson(self.value, float(self.resampled.var()), self.questions)

    @property
    def p(self) -> float:
        """Two-sided p-value of a difference against zero: below 0.05 if the 95 % interval excludes 0; 1 if there are
        fewer than `FEWEST` questions."""
        if self.questions < FEWEST:
            return 1.0
        return share_beyond(abs(self.value), self.deviations())


def share_beyond(distance: float, deviations: Numbers) -> float:
    """Share of simulated deviations, (RESAMPLES,), at least `distance` from 0; never 0, as there are only so many."""
    beyond = int((np.abs(deviations) >= distance - ROUNDING).sum())
    return (1 + beyond) / (1 + RESAMPLES)


def holm(p: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values of a family of comparisons, corrected so that the probability of any false positive at a level is at
    most that level (Holm, 1979)."""
    order = sorted(p, key=lambda key: p[key])
    scaled = [(len(p) - rank) * p[key] for rank, key in enumerate(order)]
    corrected = dict(zip(order, np.minimum(np.maximum.accumulate(scaled), 1.0).tolist(), strict=True))
    return {key: corrected[key] for key in p}


def _divided(hits: Numbers | np.floating, counts: Numbers | np.floating) -> Numbers:
    made: Numbers = np.divide(hits, counts, out=np.zeros_like(hits, dtype=float), where=counts > 0)
    return made


@dataclass(frozen=True, slots=True)
class TestedDifference:
    """The difference of a first method from a second, in shares. `p`: against no difference, corrected within the
    family."""

    difference: Estimate
    p: float

    @property
    def figures(self) -> str:
        """The difference in points, with 95 % interval and corrected p: `+1.2 [+0.3, +2.1], p = 0.012`."""
        return f"{points(self.difference.interval())}, {shown(self.p)}"


def compare(differences: Mapping[Key, Estimate]) -> dict[Key, TestedDifference]:
    """Compares a family of differences, with p-values corrected over all of them (Holm); it must hold every difference
    about which something is said."""
    p = holm({key: difference.p for key, difference in differences.items()})
    return {key: TestedDifference(difference, p[key]) for key, difference in differences.items()}


def points(difference: Share) -> str:
    """A difference of shares in points, with its interval: `+1.2 [+0.3, +2.1]`."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def shown(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
