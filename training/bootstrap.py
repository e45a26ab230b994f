"""Estimates with intervals and p-values that cover what varies: questions, all that was drawn for them, and training
seeds.

Questions are resampled. What was drawn for a question (its candidates, the draws of N of them) comes with it: its
outcome varies with them already, and resampling them once more would count their spread twice (Davison and Hinkley,
Bootstrap Methods and their Application, section 3.8).

Training seeds are few. Of three, resamples have two thirds of the variance and never leave the range, so that a 95 %
interval would cover some 75 %. Their spread enters as Student's t instead, with Welch's degrees of freedom between
PRMs. Chance that questions and seeds share is counted in both, so the intervals are wide rather than narrow.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from training.metrics import Share

RESAMPLES = 10_000
"""The smallest p is 1 / 10,001: enough for families of some hundred comparisons."""
FEWEST = 10
"""Questions that a comparison takes: what fewer have in common says nothing of others."""
ROUNDING = 1e-12
"""Differences below it are no differences."""

Numbers = npt.NDArray[np.floating]
Key = TypeVar("Key", bound=Hashable)


@lru_cache(maxsize=8)
def weights(questions: int) -> Numbers:
    """How often each resample takes each question, (RESAMPLES, questions). It is the same at every call: estimates
    over the same questions are paired."""
    made: Numbers = (
        np.random.default_rng(0).multinomial(questions, [1 / questions] * questions, RESAMPLES).astype(float)
    )
    made.flags.writeable = False
    return made


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, or a difference of two.

    `resampled`, (RESAMPLES,): the figure at resampled questions. `variance`: of the figure by its training seeds, 0 if
    there is one seed or none; `freedom`: that variance's degrees of freedom. `questions`: how many
    have a part in it.
    """

    value: float
    resampled: Numbers
    questions: int
    variance: float
    freedom: float

    @classmethod
    def of_seeds(cls, values: Numbers, resampled: Numbers, questions: int) -> Self:
        """The mean over seeds of a figure of each, (seeds,), and at resampled questions, (seeds, RESAMPLES)."""
        count = len(values)
        variance = float(values.var(ddof=1)) / count if count > 1 else 0.0
        return cls(float(values.mean()), resampled.mean(axis=0), questions, variance, count - 1)

    @classmethod
    def ratio(cls, hits: Numbers, counts: Numbers) -> Self:
        """Hits by seed and question, (seeds, questions), over what could be hit, (questions,); 0 of nothing is 0."""
        taken = weights(len(counts))
        resampled = _divided(hits @ taken.T, counts @ taken.T)
        return cls.of_seeds(_divided(hits.sum(axis=1), counts.sum()), resampled, int((counts > 0).sum()))

    @classmethod
    def mean(cls, outcomes: Numbers) -> Self:
        """The mean of outcomes by seed and question, (seeds, questions). For two ways with the same PRMs the difference
        of their outcomes goes in here, which pairs them by seed too."""
        return cls.ratio(outcomes, np.ones(outcomes.shape[1]))

    def __sub__(self, other: Self) -> Self:
        """The difference to an estimate over the same questions with other PRMs: their seeds are not paired."""
        parts = [(estimate.variance, estimate.freedom) for estimate in (self, other) if estimate.variance > 0]
        variance = sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts) if parts else 0.0
        resampled = self.resampled - other.resampled
        questions = min(self.questions, other.questions)
        return type(self)(self.value - other.value, resampled, questions, variance, freedom)

    def deviations(self, stream: int = 0) -> Numbers:
        """How far from `value` it might have come out, (RESAMPLES,); the seeds' part differs by `stream`."""
        made = self.resampled - self.value
        if self.variance > 0:
            drawn = np.random.default_rng(stream).standard_t(self.freedom, RESAMPLES)
            made = made + np.sqrt(self.variance) * drawn
        return made

    def interval(self, level: float = 0.95) -> Share:
        """The value with its interval. It is symmetric: where few questions make the whole difference, resamples
        alone don't reach as far to the side of zero as to the other (Hall, 1988)."""
        half = float(np.quantile(np.abs(self.deviations()), level))
        return Share(self.value, self.value - half, self.value + half)

    @property
    def share(self) -> Share:
        """Of a figure that is a share in [0, 1], with its 95 % interval."""
        interval = self.interval()
        return Share(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))

    @property
    def p(self) -> float:
        """Two-sided p-value of a difference against none: below 0.05 where the 95 % interval leaves out 0, and 1 where
        there are fewer than `FEWEST` questions."""
        if self.questions < FEWEST:
            return 1.0
        return _share_beyond(abs(self.value), self.deviations())

    def p_within(self, margin: float) -> float:
        """p-value of a difference against one of `margin` or more, by two one-sided tests; below 0.05 only where the
        90 % interval lies within the margin, and 1 where there are fewer than `FEWEST` questions.

        Where no question shows a difference no resample does, however few the questions are. So for what they may have
        missed the variance of half a question each way is added (Agresti and Min, 2005).
        """
        if abs(self.value) >= margin or self.questions < FEWEST:
            return 1.0
        missed = np.random.default_rng(0).normal(0, 1 / (self.questions + 2), RESAMPLES)
        return _share_beyond(margin - abs(self.value), self.deviations() + missed) / 2


def _share_beyond(distance: float, deviations: Numbers) -> float:
    beyond = int((np.abs(deviations) >= distance - ROUNDING).sum())
    return (1 + beyond) / (1 + RESAMPLES)


def holm(p: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values of a family of comparisons, corrected so that any false one among those below a level is no
    likelier than that level (Holm, 1979)."""
    corrected: dict[Key, float] = {}
    highest = 0.0
    for rank, key in enumerate(sorted(p, key=lambda key: p[key])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[key]))
        corrected[key] = highest
    return {key: corrected[key] for key in p}


def _divided(hits: Numbers, counts: Numbers | np.floating) -> Numbers:
    made: Numbers = np.divide(hits, counts, out=np.zeros_like(hits, dtype=float), where=counts > 0)
    return made
