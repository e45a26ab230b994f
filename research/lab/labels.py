"""Accuracy of the lab's labels, and how well the PRMs trained on them find first errors."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from training.data import stats
from training.evaluate import processbench, step_scores
from training.evaluate.bootstrap import Estimate, Numbers, weights
from training.layouts.files import read_labelled

from ..searches.truth import by_checker
from .benchmark import load_benchmark, question_of
from .construct import annotated, data_file
from .lab_settings import DATA_SETS, BaseName, LabSettings
from .models import seeds

ThresholdName = Literal["fixed", "chosen"]
"""Threshold below which a step counts as wrong: "fixed", 0.5; or "chosen", for each half of the benchmark's questions
the PRM's best threshold on the other half."""


@dataclass(frozen=True, slots=True)
class FirstErrorHits:
    """Hits of a data set's PRMs on the benchmark, summed by question.

    `hits`, (2, levels, seeds, questions): wrong solutions whose first error was found, and right ones without a
    predicted error. `counts`, (2, levels, questions): wrong solutions, and right ones.
    """

    hits: Numbers
    counts: Numbers

    def by_seed(self) -> Numbers:
        """F1 of each seed, the mean over the levels."""
        made: Numbers = self._f1(np.ones((1, self.counts.shape[2])))[:, 0]
        return made

    def f1(self) -> Estimate:
        questions = int(self.counts.any(axis=(0, 1)).sum())
        return Estimate.of_seeds(self.by_seed(), self._f1(weights(self.counts.shape[2])), questions)

    def _f1(self, taken: Numbers) -> Numbers:
        """F1, (seeds, resamples), if each question occurs as often as in `taken`, (resamples, questions)."""
        hits, counts = self.hits @ taken.T, (self.counts @ taken.T)[:, :, None]
        hit, left = np.divide(hits, counts, out=np.zeros_like(hits), where=counts > 0)
        total = hit + left
        made: Numbers = np.divide(2 * hit * left, total, out=np.zeros_like(total), where=total > 0).mean(axis=0)
        return made


def hits(settings: LabSettings, output: Path, base: BaseName, name: str) -> dict[ThresholdName, FirstErrorHits]:
    """Hits on the benchmark of the PRMs of a base and a data set, by threshold."""
    subsets, places = load_benchmark(output), seeds(settings, base, name)
    names = sorted({question_of(sample) for samples in subsets.values() for sample in samples})
    questions = {name: number for number, name in enumerate(names)}
    by_threshold = np.zeros((len(processbench.GRID), 2, len(subsets), len(places), len(questions)))
    counts = np.zeros((2, len(subsets), len(questions)))
    for level, (subset, samples) in enumerate(subsets.items()):
        kept = [step_scores.kept(output / "processbench" / place, subset) for place in places]
        for sample in samples:
            kind, question = int(sample.first_error is None), questions[question_of(sample)]
            counts[kind, level, question] += 1
            for seed, scores in enumerate(kept):
                predicted = [processbench.prediction(scores[sample.id], threshold) for threshold in processbench.GRID]
                by_threshold[:, kind, level, seed, question] += [first == sample.first_error for first in predicted]
    fixed = FirstErrorHits(by_threshold[processbench.GRID.index(processbench.THRESHOLD)], counts)
    return {"fixed": fixed, "chosen": at_chosen(by_threshold, counts)}


def at_chosen(by_threshold: Numbers, counts: Numbers) -> FirstErrorHits:
    """Hits on each half of the questions, at the threshold with the seed's highest F1 on the other half.

    Args:
        found: hits by threshold, (thresholds, 2, levels, seeds, questions).
        counts: as in `FirstErrorHits`.
    """
    hits = np.zeros_like(by_threshold[0])
    second = np.arange(counts.shape[2]) % 2 == 1
    for half in (second, ~second):
        other = (~half)[None].astype(float)
        best = np.stack([FirstErrorHits(at, counts)._f1(other)[:, 0] for at in by_threshold]).argmax(axis=0)
        for seed, threshold in enumerate(best):
            hits[:, :, seed, half] = by_threshold[threshold, :, :, seed][:, :, half]
    return FirstErrorHits(hits, counts)


@dataclass(frozen=True, slots=True)
class DataSetFigures:
    """A data set: number of solutions; rollouts of its search, including those for solutions left without labels but
    not those for τ; and share of its wrong solutions whose first error is labelled correctly."""

    solutions: int
    samples: int
    first: float


def made(output: Path, name: str) -> DataSetFigures:
    solutions = list(read_labelled([data_file(output, name)]))
    data_set = DATA_SETS[name]
    first = [
        solution.labels.index(False) == by_checker(solution.problem, solution.steps)
        for solution in solutions
        if not all(solution.labels)
    ]
    searched = annotated(output, data_set.selection) / f"{data_set.search}.jsonl"
    return DataSetFigures(len(solutions), stats.costs(searched).samples if data_set.search else 0, fmean(first))
