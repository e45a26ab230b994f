"""How true the lab's labels are, how well PRMs that learned from them find first errors, and which measure of
uncertainty points at errors."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training import journal, processbench, stats
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
Flags = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Hits:
    """Of a data set's PRMs on the benchmark: `wrong`, (seeds, wrong solutions), 1 where the first error was found;
    `right`, (seeds, right solutions), 1 where no step was called wrong."""

    wrong: Flags
    right: Flags

    def f1(self) -> float:
        """F1 over all levels together, the hits of the seeds averaged."""
        return float(_harmonic(self.wrong.mean(), self.right.mean()))

    def by_seed(self) -> list[float]:
        """F1 of each seed."""
        return [float(f1) for f1 in _harmonic(self.wrong.mean(axis=1), self.right.mean(axis=1))]


def hits(settings: LabSettings, output: Path, name: str) -> Hits:
    """What the PRMs of a data set hit at the threshold 0.5."""
    subsets = processbench.load(str(output / "benchmark"))
    found: dict[bool, list[list[float]]] = {True: [], False: []}
    for place in seeds(settings, name):
        told: dict[bool, list[float]] = {True: [], False: []}
        for subset, samples in subsets.items():
            scores = processbench.kept(output / "processbench" / place, subset)
            for sample in samples:
                predicted = processbench.prediction(scores[sample.id], processbench.THRESHOLD)
                told[sample.label is not None].append(float(predicted == sample.label))
        for kind, own in told.items():
            found[kind].append(own)
    return Hits(np.array(found[True]), np.array(found[False]))


def f1_difference(first: Hits, second: Hits) -> Share:
    """Difference of two F1 on the same benchmark, with its 95 % bootstrap interval over the solutions."""
    rng = np.random.default_rng(0)
    resampled = []
    for one, other in ((first.wrong, second.wrong), (first.right, second.right)):
        picks = rng.integers(0, one.shape[1], (RESAMPLES, one.shape[1]))
        resampled.append([own.mean(axis=0)[picks].mean(axis=1) for own in (one, other)])
    (wrong, wrong_other), (right, right_other) = resampled
    low, high = np.quantile(_harmonic(wrong, right) - _harmonic(wrong_other, right_other), [0.025, 0.975])
    return Share(first.f1() - second.f1(), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Made:
    """Of a data set: labelled solutions, rollouts that the labels took (those for τ left out), and the share of its
    wrong solutions whose first error was labelled as such."""

    solutions: int
    samples: int
    first: float


def made(output: Path, name: str, own: DataSet) -> Made:
    """What a data set holds and what it cost."""
    solutions = sum(1 for _ in read(data_file(output, name)))
    if own.labels is None:
        return Made(solutions, 0, 1.0)
    annotated = output / "annotated" / f"{name}.jsonl"
    agreed = stats.agreement(stats.load(annotated))
    return Made(solutions, stats.costs(annotated).samples, agreed.first if agreed else 0.0)


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


def _harmonic(first: Flags, second: Flags) -> Flags:
    total = np.asarray(first + second)
    made: Flags = np.divide(2 * first * second, total, out=np.zeros_like(total), where=total > 0)
    return made
