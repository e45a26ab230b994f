"""PRMBench: which steps does a PRM call wrong, by kind of error?

A step is called right if its score is above 0.5. PRMScore is the mean of two F1, of finding right steps and of
finding wrong ones, over all steps of a category, or of all categories. Multi-solutions have no wrong step, so their
PRMScore is the first F1 alone (Song et al., "PRMBench", 2025, and its authors' program). As in that program:

- A number of a wrong step that is beyond the last step is without effect; the solution counts all the same.
- Of several solutions with one id the first counts.
- Solutions that can't be scored don't count.
- Numbers at the beginning of steps (`3. `) are cut off. That program also cuts `2.` off `2.5`, which this one does not.

Blank steps, 15 of 83,456, are neither scored nor counted. The original solutions are not scored: they serve for the
similarity of scores, which is no part of PRMScore.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from .. import resumable
from ..schema import Scores
from . import step_scores
from .bootstrap import weights
from .metrics import Share
from .prmbench_solutions import CATEGORIES, Benchmark, PrmBenchSolution
from .scorers import Scorer

THRESHOLD = 0.5
WITHOUT_ERRORS = "multi_solutions"
ABBREVIATED = dict(zip(CATEGORIES, ("NR", "NCL", "ES", "SC", "DC", "CI", "PS", "DR", "MS"), strict=True))
"""The authors' names of what resists an error of the category: non-redundancy, non-circular logic, …"""
GROUPS = {"simplicity": CATEGORIES[:2], "soundness": CATEGORIES[2:6], "sensitivity": CATEGORIES[6:]}
PUBLISHED = {
    "Skywork-PRM-1.5B": (31.7, 31.4, 35.8, 32.4, 25.7, 26.0, 30.2, 33.1, 32.3, 81.1, 33.6, 28.6, 48.8),
    "Skywork-PRM-7B": (36.2, 35.7, 41.2, 36.7, 29.1, 30.6, 34.4, 36.8, 37.4, 88.8, 38.4, 32.7, 54.3),
    "Math-Shepherd-PRM-7B": (47.0, 44.0, 50.3, 49.4, 44.5, 41.3, 47.7, 47.2, 48.6, 86.1, 47.1, 45.7, 60.7),
    "RLHFlow-PRM-Deepseek-8B": (54.2, 46.4, 48.9, 55.7, 55.0, 53.2, 66.2, 49.0, 55.4, 99.8, 47.6, 57.5, 68.1),
    "RLHFlow-PRM-Mistral-8B": (54.4, 46.1, 47.3, 56.6, 55.1, 54.4, 63.8, 51.5, 56.2, 97.9, 46.7, 57.5, 68.5),
    "ReasonEval-7B": (60.0, 61.0, 50.1, 62.1, 65.9, 61.5, 65.9, 55.6, 57.9, 99.5, 55.6, 63.8, 71.0),
    "ReasonEval-34B": (60.5, 54.8, 48.1, 66.4, 60.3, 57.8, 67.5, 57.7, 64.3, 97.2, 51.5, 63.0, 73.1),
    "Qwen2.5-Math-PRM-7B": (65.5, 49.1, 55.2, 71.8, 67.2, 66.3, 78.5, 57.7, 69.2, 99.7, 52.1, 71.0, 75.6),
}
"""PRMScore in percent, overall, by category and by group (the authors' repository, January 2025). There a step is right
for Skywork's PRMs if the score falls by less than 0.05 from the step before."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of steps: right ones called right (`tp`) and wrong (`fn`), wrong ones called wrong (`tn`) and right
    (`fp`)."""

    tp: int = 0
    fn: int = 0
    tn: int = 0
    fp: int = 0

    @classmethod
    def of(cls, labels: Sequence[bool], scores: Sequence[float]) -> Self:
        """Of a solution's steps."""
        seen = Counter((label, score > THRESHOLD) for label, score in zip(labels, scores, strict=True))
        return cls(seen[True, True], seen[True, False], seen[False, False], seen[False, True])

    def __add__(self, other: Self) -> Self:
        return type(self)(self.tp + other.tp, self.fn + other.fn, self.tn + other.tn, self.fp + other.fp)

    @property
    def f1(self) -> float:
        """Of finding right steps, in [0, 1]; 0 if none is there or found."""
        return _f1(self.tp, self.fn + self.fp)

    @property
    def negative_f1(self) -> float:
        """Of finding wrong steps, in [0, 1]; 0 if none is there or found."""
        return _f1(self.tn, self.fn + self.fp)

    @property
    def prm_score(self) -> float:
        """The mean of both, in [0, 1]."""
        return (self.f1 + self.negative_f1) / 2


def _f1(hits: int, misses: int) -> float:
    return 2 * hits / (2 * hits + misses) if hits else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Results on a category, or on all; shares in [0, 1]. `steps`: number of steps that count. `unscored`: solutions
    that could not be scored, and don't count."""

    prm_score: float
    f1: float
    negative_f1: float
    solutions: int
    steps: int
    unscored: int


@dataclass(frozen=True, slots=True)
class Result:
    """Results overall, with the 95 % bootstrap interval of PRMScore over the questions, and by category and group of
    categories; a group has the mean of its categories, if all are there."""

    overall: Figures
    low: float
    high: float
    categories: Mapping[str, Figures]
    groups: Mapping[str, float]


def measure(benchmark: Benchmark, scores: Mapping[str, Mapping[str, Scores]]) -> Result:
    """The results of step scores by category and id."""
    counts: dict[str, dict[str, Counts]] = {}
    for name, solutions in benchmark.solutions.items():
        scored = [(solution, scores[name][solution.id]) for solution in solutions]
        counts[name] = {each.id: Counts.of(each.labels, values) for each, values in scored if values is not None}
    categories = {
        name: _figures(list(found.values()), len(benchmark.solutions[name]), name == WITHOUT_ERRORS)
        for name, found in counts.items()
    }
    everything = [each for solutions in benchmark.solutions.values() for each in solutions]
    all_counts = {id: count for found in counts.values() for id, count in found.items()}
    low, high = _interval(everything, all_counts)
    return Result(
        overall=_figures(list(all_counts.values()), len(everything)),
        low=low,
        high=high,
        categories=categories,
        groups={
            group: sum(categories[name].prm_score for name in names) / len(names)
            for group, names in GROUPS.items()
            if categories.keys() >= set(names)
        },
    )


def _figures(counts: Sequence[Counts], solutions: int, without_errors: bool = False) -> Figures:
    total = sum(counts, Counts())
    return Figures(
        total.f1 if without_errors else total.prm_score,
        total.f1,
        total.negative_f1,
        len(counts),
        total.tp + total.fn + total.tn + total.fp,
        solutions - len(counts),
    )


def _interval(solutions: Sequence[PrmBenchSolution], counts: Mapping[str, Counts]) -> tuple[float, float]:
    """95 % bootstrap interval of PRMScore; a question is resampled with its solutions of all categories."""
    by_question: dict[str, Counts] = {}
    for solution in solutions:
        by_question[solution.question] = by_question.get(solution.question, Counts()) + counts.get(
            solution.id, Counts()
        )
    table = np.array([(each.tp, each.tn, each.fn + each.fp) for each in by_question.values()], dtype=float)
    right, wrong, missed = (weights(len(table)) @ table).T
    low, high = np.quantile((_f1s(right, missed) + _f1s(wrong, missed)) / 2, [0.025, 0.975])
    return float(low), float(high)


def _f1s(hits: npt.NDArray[np.float64], misses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(2 * hits, 2 * hits + misses, out=np.zeros_like(hits), where=hits > 0)


def evaluate(benchmark: Benchmark, scorer: Scorer, output: Path, console: Console) -> Result:
    """Scores the solutions and writes `output/results.json`; scores are kept as by `step_scores.score`."""
    scores = step_scores.score("prmbench", benchmark.solutions, _digest, scorer, output, console)
    result = measure(benchmark, scores)
    record = {
        "model": scorer.identity.model,
        "threshold": THRESHOLD,
        **asdict(result),
        "misnumbered": benchmark.misnumbered,
        "repeated": benchmark.repeated,
    }
    resumable.replace(output / "results.json", json.dumps(record, indent=2) + "\n")
    return result


def remarks(benchmark: Benchmark, result: Result) -> Iterator[str]:
    """What a reader has to know of the figures: solutions that don't count, or not as one would think."""
    if missing := [name for name in CATEGORIES if name not in benchmark.solutions]:
        yield f"There is no solution of {', '.join(missing)}: published overall figures are of all categories."
    if benchmark.misnumbered:
        yield (
            f"Solutions that number wrong steps beyond their last one: {benchmark.misnumbered}. Such numbers have no "
            "effect, as in the published figures."
        )
    if benchmark.repeated:
        yield (
            f"Solutions with the id of an earlier one: {benchmark.repeated}. They do not count, as in the published "
            "figures."
        )
    if unscored := result.overall.unscored:
        yield f"Solutions too long for the model or the server: {unscored}. They do not count."


def table(result: Result) -> Table:
    """The results next to the published ones, PRMScore in percent."""
    shown = Table(title="PRMBench: PRMScore")
    shown.add_column("model")
    for name in ("overall", *ABBREVIATED.values(), *GROUPS):
        shown.add_column(name, justify="right")
    by_category = {name: figures.prm_score for name, figures in result.categories.items()}
    cells = [_percent(by_category.get(name)) for name in CATEGORIES]
    overall = Share(result.overall.prm_score, result.low, result.high).in_percent
    shown.add_row("this model", overall, *cells, *(_percent(result.groups.get(group)) for group in GROUPS))
    shown.add_section()
    for model, row in PUBLISHED.items():
        shown.add_row(f"{model} (published)", *(f"{score:.1f}" for score in row), style="dim")
    return shown


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _digest(solutions: Sequence[PrmBenchSolution]) -> str:
    fields = [
        {"id": solution.id, "problem": solution.problem, "steps": solution.steps, "labels": solution.labels}
        for solution in solutions
    ]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]
