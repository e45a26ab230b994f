"""ProcessBench: does a PRM find the first wrong step, and leave right solutions alone?

The predicted error is the first step with a score below the threshold. Measured per subset: the share of the wrong
solutions whose first wrong step is predicted exactly, the share of the right ones without a predicted error, and F1,
their harmonic mean; the average is over the subsets' F1 (Zheng et al., "ProcessBench", 2024).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from unprm import steps
from unprm.errors import RecordInvalid

from .. import resumable, sources
from ..schema import BenchmarkSolution, Scores
from ..sources import Identified
from .metrics import FirstErrorFigures, in_markdown, read_published
from .scorers import Scorer, score_benchmark

SUBSETS = ("gsm8k", "math", "olympiadbench", "omnimath")
CHOOSING = "gsm8k"
"""The subset on which the threshold is chosen."""
THRESHOLD = 0.5
GRID = tuple(k / 100 for k in range(1, 100))
"""Candidate thresholds."""
UNSCORED = -2
"""The prediction for a solution that could not be scored: equal to no label."""
PUBLISHED = read_published("processbench")
"""F1 in percent by subset and on average (paper, table of ProcessBench results)."""


class KnownFirstError(Identified, Protocol):
    """A solution whose first wrong step is known."""

    @property
    def first_error(self) -> int | None:
        """Index of the first wrong step, None if all are right."""
        ...


def load_processbench(source: str) -> dict[str, list[BenchmarkSolution]]:
    """Solutions by subset, read from a file (a subset is named after its file), from the files of a directory, or from
    the hub's data set of that name.

    Raises `RecordInvalid` for an invalid record, a duplicate id or a directory without files; and if all solutions of a
    subset are wrong, or all right.
    """
    places = dict.fromkeys(SUBSETS, source)
    if (place := Path(source)).exists():
        places = {path.name.partition(".")[0]: str(path) for path in sources.files(place)}
    subsets = {}
    for name, where in places.items():
        subsets[name] = sources.unique(where, sources.numbered(where, BenchmarkSolution, name))
        check_kinds(where, subsets[name])
    return subsets


def check_kinds(source: str, samples: Iterable[KnownFirstError]) -> None:
    """Raises `RecordInvalid` if all solutions are wrong, or all right."""
    if len({sample.first_error is None for sample in samples}) < 2:
        raise RecordInvalid(source, 0, "F1 takes wrong solutions and right ones (label -1): both kinds are needed")


def figures(samples: Sequence[KnownFirstError], scores: Mapping[str, Scores], threshold: float) -> FirstErrorFigures:
    """Figures of a subset at a threshold; both right and wrong solutions must occur (`ValueError`)."""
    predicted = [prediction(scores[sample.id], threshold) for sample in samples]
    too_long = sum(scores[sample.id] is None for sample in samples)
    return FirstErrorFigures.of(predicted, [sample.first_error for sample in samples], too_long)


def prediction(scores: Scores, threshold: float) -> int | None:
    """Index of the first step below the threshold, None if there is none; `UNSCORED` without scores."""
    return UNSCORED if scores is None else steps.first_error(scores, threshold)


def best_threshold(samples: Sequence[KnownFirstError], scores: Mapping[str, Scores]) -> float:
    """The threshold with the highest F1 on these samples; of equal ones the one nearest to 0.5."""
    return max(GRID, key=lambda threshold: (figures(samples, scores, threshold).f1, -abs(threshold - THRESHOLD)))


@dataclass(frozen=True, slots=True)
class ThresholdFigures:
    """Figures of each subset at one threshold, and the mean of their F1."""

    threshold: float
    subsets: dict[str, FirstErrorFigures]
    average_f1: float


def evaluate(
    subsets: Mapping[str, Sequence[BenchmarkSolution]], scorer: Scorer, output: Path, console: Console
) -> dict[str, ThresholdFigures]:
    """Scores the samples and writes `output/results.json`; arguments as for `score`."""
    measured = results(subsets, score(subsets, scorer, output, console))
    record = {"model": scorer.identity.model, **{key: asdict(result) for key, result in measured.items()}}
    resumable.write_results(output, record)
    return measured


def results(
    subsets: Mapping[str, Sequence[KnownFirstError]], scores: Mapping[str, Mapping[str, Scores]]
) -> dict[str, ThresholdFigures]:
    """The results at the threshold 0.5, and at the best threshold on GSM8K (on the first subset if that is missing).

    A single subset has no best threshold: it would be chosen and tested on the same data.
    """
    thresholds = {"fixed": THRESHOLD}
    if len(subsets) > 1:
        chosen = CHOOSING if CHOOSING in subsets else next(iter(subsets))
        thresholds[f"best on {chosen}"] = best_threshold(subsets[chosen], scores[chosen])
    made = {}
    for name, threshold in thresholds.items():
        by_subset = {key: figures(samples, scores[key], threshold) for key, samples in subsets.items()}
        made[name] = ThresholdFigures(
            threshold, by_subset, sum(subset.f1 for subset in by_subset.values()) / len(by_subset)
        )
    return made


def score(
    subsets: Mapping[str, Sequence[BenchmarkSolution]], scorer: Scorer, output: Path, console: Console
) -> dict[str, dict[str, Scores]]:
    """Scores of all samples by subset and id, written to `output` as by `score_benchmark`."""
    return score_benchmark("processbench", subsets, _fields, scorer, output, console)


def markdown(model: str, measured: Mapping[str, ThresholdFigures]) -> str:
    names = list(next(iter(measured.values())).subsets)
    rows = [
        [
            Path(model).name,
            f"threshold {result.threshold:.3g} ({way})",
            *(subset.f1_share.in_percent for subset in result.subsets.values()),
            f"{100 * result.average_f1:.1f}",
        ]
        for way, result in measured.items()
    ]
    for published, row in PUBLISHED.items():
        f1 = dict(zip((*SUBSETS, "average"), map("{:.1f}".format, row), strict=True))
        if set(names) != set(SUBSETS):
            del f1["average"]  # it is of other subsets
        rows.append([published, "published", *(f1.get(name, "–") for name in (*names, "average"))])
    title = "ProcessBench: F1 of finding the first wrong step, in % (95 % interval)"
    return f"{title}\n\n{in_markdown(['model', 'figures', *names, 'average'], rows)}"


def _fields(sample: BenchmarkSolution) -> dict[str, object]:
    # the key "asked" must stay: it is part of the digests of existing files
    asked = {"problem": sample.problem, "steps": sample.steps}
    return {"id": sample.id, "asked": asked, "label": sample.first_error}
