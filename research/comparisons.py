"""Which of two methods is better, in cautious words, by p-values that are corrected within a family of comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from training.evaluate import bootstrap
from training.evaluate.bootstrap import FEWEST, RESAMPLES, Estimate, Key, holm, share_beyond

LEVEL = 0.05
"""Corrected p-values below this level count as significant."""
F1_MARGIN = 0.03
"""Margin for F1 and for shares of labels: about the smallest difference of two PRMs that ProcessBench's 3,400 solutions
can show."""
ACCURACY_MARGIN = 0.01
"""Margin for a vote's accuracy: two of the lab's 200 questions, five of MATH500's."""

Outcome = Literal["better", "worse", "as good", "open"]


@dataclass(frozen=True, slots=True)
class Comparison(bootstrap.Comparison):
    """A comparison that can also show that two methods are as good. `p_equivalent`: against a difference of `margin` or
    more, corrected within the family."""

    margin: float
    p_equivalent: float

    @property
    def outcome(self) -> Outcome:
        """What may be said about the first method, by the p-values."""
        if self.p < LEVEL:
            return "better" if self.difference.value > 0 else "worse"
        return "as good" if self.is_small else "open"

    @property
    def is_small(self) -> bool:
        """Whether the difference is significantly below the margin."""
        return self.p_equivalent < LEVEL


def compare(differences: Mapping[Key, Estimate], margin: float) -> dict[Key, Comparison]:
    """Compares a family of differences, with p-values corrected over all of them; it must hold every difference about
    which something is said."""
    compared = bootstrap.compare(differences)
    within = holm({key: p_within(difference, margin) for key, difference in differences.items()})
    return {key: Comparison(each.difference, each.p, margin, within[key]) for key, each in compared.items()}


def p_within(difference: Estimate, margin: float) -> float:
    """p-value against a difference of `margin` or more, by two one-sided tests: below 0.05 only if the 90 %
    interval lies within the margin; 1 if there are fewer than `FEWEST` questions.

    If no question shows a difference, no resample does, however few the questions are. To allow for differences
    they may have missed, the variance of half a question each way is added (Agresti and Min, 2005).
    """
    if abs(difference.value) >= margin or difference.questions < FEWEST:
        return 1.0
    missed = np.random.default_rng(0).normal(0, 1 / (difference.questions + 2), RESAMPLES)
    return share_beyond(margin - abs(difference.value), difference.deviations() + missed) / 2


def sentence(comparison: Comparison, first: str, second: str) -> str:
    """The outcome as a sentence, with the figures."""
    small = f", by less than {_margin(comparison.margin)}" if comparison.is_small else ""
    said = {
        "better": f"{first} is better than {second}{small}",
        "worse": f"{first} is worse than {second}{small}",
        "as good": f"{first} is as good as {second}",
        "open": f"{first} and {second} can't be told apart",
    }[comparison.outcome]
    return f"{said} ({comparison.figures})"


def sentences(family: Mapping[tuple[str, str], Comparison]) -> str:
    """The outcome of each pair: `a is better than b (…); …`."""
    return "; ".join(sentence(comparison, *pair) for pair, comparison in family.items())


def grouped(family: Mapping[str, Comparison]) -> str:
    """The first methods grouped by outcome against a common second one: `better: a (…), b (…); worse: c (…)`."""
    words: dict[Outcome, str] = {
        "better": "better", "worse": "worse", "as good": "as good", "open": "can't be told apart from it"
    }  # fmt: skip
    parts = []
    for outcome, said in words.items():
        ways = [
            f"{name} ({comparison.figures})" for name, comparison in family.items() if comparison.outcome == outcome
        ]
        if ways:
            parts.append(f"{said}: {', '.join(ways)}")
    return "; ".join(parts)


def note(count: int, margin: float, seeds: int) -> str:
    """Explains the figures of a family of `count` comparisons of PRMs with `seeds` training seeds (0: no PRM)."""
    over = {0: "questions", 1: "questions, not over training seeds, of which there is one"}
    corrected = (
        f" Of each family of {count} comparisons p is corrected (Holm), and only p below {LEVEL:g} says anything."
    )
    return (
        f"Differences are in points, with 95 % intervals over {over.get(seeds, 'questions and training seeds')}."
        f"{corrected if count > 1 else ''} “As good” is shown to differ by less than {_margin(margin)}, which few "
        "questions can't show even if all end alike."
    )


def _margin(margin: float) -> str:
    number = f"{100 * margin:g}"
    return f"{number} point" if number == "1" else f"{number} points"
