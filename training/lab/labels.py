"""How true the lab's labels are, how well PRMs that learned from them find first errors, and which measure of
uncertainty points at errors."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training import journal, processbench, stats
from training.lab.benchmark import load_benchmark, question_of
from training.lab.construct import data_file, selected_file
from training.lab.models import seeds
from training.lab.settings import DataSet, LabSettings
from training.metrics import Share
from training.records import read
from training.select import step_uncertainties
from unprm.mini.checker import first_error
from unprm.mini.domain import parse
from unprm.uncertainty import MEASURES

RESAMPLES = 2000
Numbers = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Hits:
    """What a data set's PRMs hit on the benchmark, summed by question.

    `hits`, (2, levels, seeds, questions): wrong solutions whose first error was found, and right ones in which no step
    was called wrong. `counts`, (2, levels, questions): wrong solutions, and right ones.
    """

    hits: Numbers
    counts: Numbers

    def by_seed(self) -> Numbers:
        """F1 of each seed, the mean over the levels."""
        made: Numbers = self._f1(np.ones((1, self.counts.shape[2])))[:, 0]
        return made

    def f1(self) -> float:
        """The mean of the seeds' F1."""
        return float(self.by_seed().mean())

    def resampled(self, weights: Numbers, rng: np.random.Generator) -> Numbers:
        """F1 with the questions taken as often as `weights`, (resamples, questions), says, and with seeds drawn
        anew: (resamples,)."""
        f1 = self._f1(weights)
        picks = rng.integers(0, len(f1), (len(f1), len(weights)))
        made: Numbers = np.take_along_axis(f1, picks, axis=0).mean(axis=0)
        return made

    def _f1(self, weights: Numbers) -> Numbers:
        """(seeds, resamples)"""
        hits, counts = self.hits @ weights.T, (self.counts @ weights.T)[:, :, None]
        found, left = np.divide(hits, counts, out=np.zeros_like(hits), where=counts > 0)
        total = found + left
        made: Numbers = np.divide(2 * found * left, total, out=np.zeros_like(total), where=total > 0).mean(axis=0)
        return made


def hits(settings: LabSettings, output: Path, name: str) -> Hits:
    """What the PRMs of a data set hit at the threshold 0.5."""
    subsets, places = load_benchmark(output), seeds(settings, name)
    questions = {
        question: k for k, question in enumerate(sorted({question_of(s) for own in subsets.values() for s in own}))
    }
    found = np.zeros((2, len(subsets), len(places), len(questions)))
    counts = np.zeros((2, len(subsets), len(questions)))
    for level, (subset, samples) in enumerate(subsets.items()):
        kept = [processbench.kept(output / "processbench" / place, subset) for place in places]
        for sample in samples:
            kind, question = int(sample.label is None), questions[question_of(sample)]
            counts[kind, level, question] += 1
            for seed, scores in enumerate(kept):
                predicted = processbench.prediction(scores[sample.id], processbench.THRESHOLD)
                found[kind, level, seed, question] += predicted == sample.label
    return Hits(found, counts)


def f1_difference(first: Hits, second: Hits) -> Share:
    """Difference of two F1 on the same benchmark, with its 95 % bootstrap interval over questions, which both have in
    common, and training seeds."""
    rng = np.random.default_rng(0)
    questions = first.counts.shape[2]
    weights = rng.multinomial(questions, np.full(questions, 1 / questions), RESAMPLES).astype(float)
    differences = first.resampled(weights, rng) - second.resampled(weights, rng)
    low, high = np.quantile(differences, [0.025, 0.975])
    return Share(first.f1() - second.f1(), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Made:
    """Of a data set: its solutions; the rollouts of its search, also for solutions that stayed without labels, but not
    those for τ; and the share of its wrong solutions whose first error is labelled as such."""

    solutions: int
    samples: int
    first: float


def made(output: Path, name: str, own: DataSet) -> Made:
    """What a data set holds and what it cost."""
    solutions = list(read(data_file(output, name)))
    annotated = output / "annotated" / f"{name}.jsonl"
    first = [
        told.labels.index(False) == first_error(parse(told.problem), told.steps)
        for told in solutions
        if not all(told.labels)
    ]
    samples = 0 if own.labels is None else stats.costs(annotated).samples
    return Made(len(solutions), samples, sum(first) / len(first))


@dataclass(frozen=True, slots=True)
class Pointer:
    """How a measure of uncertainty points at first errors. `hit`: share of the wrong solutions where Δu is largest at
    the first error; `chance`: if any step were as likely; `rank`: mean relative rank of the first error by falling Δu,
    0 first and 1 last; `length`: correlation of a step's uncertainty with the logarithm of its tokens."""

    measure: str
    hit: float
    chance: float
    rank: float
    length: float


def measures(output: Path) -> list[Pointer]:
    """Of every measure, on the wrong solutions of more than one step. The first step's Δu is taken against the mean of
    the question's steps."""
    wrong = list(_wrong(output))
    return [_pointer(name, wrong) for name in MEASURES]


def _wrong(output: Path) -> Iterator[tuple[journal.Record, int]]:
    for record in journal.read(selected_file(output, "random")):
        error = first_error(parse(record["problem"]), record["steps"])
        if error is not None and len(record["steps"]) > 1:
            yield record, error


def _pointer(measure: str, wrong: list[tuple[journal.Record, int]]) -> Pointer:
    places, chances, values, lengths = [], [], [], []
    for record, error in wrong:
        own = step_uncertainties(record["logprobs"], record["ends"], measure)
        rises = np.diff([record["mean_step_uncertainty"][measure], *own])
        places.append((int((rises > rises[error]).sum()), len(own)))
        chances.append(1 / len(own))
        values += own
        lengths += np.diff([0, *record["ends"]]).tolist()
    return Pointer(
        measure=measure,
        hit=float(np.mean([place == 0 for place, _ in places])),
        chance=float(np.mean(chances)),
        rank=float(np.mean([place / (count - 1) for place, count in places])),
        length=float(np.corrcoef(values, np.log(lengths))[0, 1]),
    )
