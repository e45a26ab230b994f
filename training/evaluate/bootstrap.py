"""Estimates with intervals and p-values that cover the sampling of questions and all draws for them.

Questions are resampled, each together with what was drawn for it (its candidates, the draws of N of them): a
question's outcome already varies with these draws, and resampling them again would count their variance twice (Davison
and Hinkley, Bootstrap Methods and their Application, section 3.8).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from .metrics import Share

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
        """The mean of `outcomes`, (questions,)."""
        return cls.ratio(outcomes, np.ones(len(outcomes)))

    def __sub__(self, other: Self) -> Self:
        """The difference from an estimate over the same questions."""
        questions = min(self.questions, other.questions)
        return type(self)(self.value - other.value, self.resampled - other.resampled, questions)

    def deviations(self) -> Numbers:
        """Deviations from `value` on resampled questions, (RESAMPLES,)."""
        return self.resampled - self.value

    def interval(self, level: float = 0.95) -> Share:
        """The value with its interval. The interval is symmetric: if few questions make up the whole difference,
        resamples reach less far towards zero than away from it (Hall, 1988)."""
        half = float(np.quantile(np.abs(self.deviations()), level))
        return Share(self.value, self.value - half, self.value + half)

    @property
    def share(self) -> Share:
        """The value with its 95 % interval; for a figure that is a share."""
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
