"""Findings: a question, the table that answers it, and comparisons with p-values that are corrected within a family."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from training.evaluate import metrics

LEVEL = 0.05
"""Corrected p-values below this level count as significant."""
F1_MARGIN = 0.03
"""Margin for F1 and for shares of labels: about the smallest difference of two PRMs that ProcessBench's 3,400 solutions
can show."""


def finding(question: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *notes: str) -> str:
    """A section in Markdown: the question as its heading, the table that answers it, and how to read it."""
    return f"## {question}\n\n{metrics.in_markdown(columns, rows, names=1)}\n{' '.join(notes)}\n"


def compare(differences: Mapping[metrics.Key, metrics.Estimate], margin: float) -> dict[metrics.Key, str]:
    """The figures of a family of differences, with p-values corrected over all of them: `+0.1 [-0.3, +0.5], p = 1.000`,
    and then `: as good` where the difference is shown to be below the margin. The family must hold every difference
    about which something is said."""
    within = metrics.holm({key: p_within(difference, margin) for key, difference in differences.items()})
    return {
        key: each.figures + (": as good" if within[key] < LEVEL <= each.p else "")
        for key, each in metrics.compare(differences).items()
    }


def p_within(difference: metrics.Estimate, margin: float) -> float:
    """p-value against a difference of `margin` or more, by two one-sided tests: below 0.05 only if the 90 %
    interval lies within the margin; 1 if there are fewer than `FEWEST` questions.

    If no question shows a difference, no resample does, however few the questions are. To allow for differences
    they may have missed, the variance of half a question each way is added (Agresti and Min, 2005).
    """
    if abs(difference.value) >= margin or difference.questions < metrics.FEWEST:
        return 1.0
    missed = np.random.default_rng(0).normal(0, 1 / (difference.questions + 2), metrics.RESAMPLES)
    return metrics.share_beyond(margin - abs(difference.value), difference.deviations() + missed) / 2


def note(count: int, margin: float) -> str:
    """Explains the figures of a family of `count` comparisons."""
    corrected = f" Of each family of {count} p is corrected (Holm), and only p below {LEVEL:g} says anything."
    return (
        f"Differences are in points, with 95 % intervals over questions."
        f"{corrected if count > 1 else ''} “As good” is shown to differ by less than {100 * margin:g} points, which "
        "few questions can't show even if all end alike."
    )
