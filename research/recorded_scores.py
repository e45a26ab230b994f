"""Metrics from recorded step scores of published PRMs on ProcessBench, without a model.

A file is JSON lines, plain or `.gz`, of one subset: `{"id": ProcessBench's, "label": …, "scores": {PRM: [score, …]}}`.
Scores may end at the first wrong step: whether it is found does not depend on later steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from training import sources
from training.evaluate import processbench
from training.evaluate.metrics import in_markdown, percent
from training.evaluate.processbench import SUBSETS, THRESHOLD, ThresholdFigures
from training.schema import NonEmpty
from unprm.errors import RecordInvalid

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


@dataclass(frozen=True, slots=True)
class RecordedSolution:
    """Scores of published PRMs for a solution of ProcessBench (`id`), recorded without a model.

    `label`: index of the first wrong step, -1 if all are right. `scores`: by PRM, the scores of the same steps, at
    least up to the first wrong one.
    """

    id: NonEmpty
    label: Annotated[int, Field(ge=-1, strict=True)]
    scores: Annotated[dict[str, Annotated[tuple[Score, ...], Field(min_length=1)]], Field(min_length=1)]

    def __post_init__(self) -> None:
        lengths = {len(scores) for scores in self.scores.values()}
        if len(lengths) > 1:
            raise ValueError(f"its PRMs scored different numbers of steps: {sorted(lengths)}")
        if self.label >= (scored := lengths.pop()):
            raise ValueError(f"label {self.label}, but only {scored} steps have scores")

    @property
    def first_error(self) -> int | None:
        """Index of the first wrong step, None if all are right."""
        return None if self.label < 0 else self.label

    @property
    def step_labels(self) -> tuple[bool, ...]:
        """Whether each step is right, up to the first wrong one; the labels of later steps are unknown."""
        if self.first_error is None:
            return (True,) * len(next(iter(self.scores.values())))
        return (True,) * self.first_error + (False,)


def read(places: Iterable[Path]) -> dict[str, list[RecordedSolution]]:
    """Solutions by subset, from files, and from the `prm_scores*.jsonl*` files of directories.

    Raises `RecordInvalid` for an invalid record; a record of another subset than the file's first, with a label beyond
    its scores, a duplicate id, or other PRMs than the first record of all; a second file of a subset; a subset whose
    solutions are all wrong or all right; and a directory without such files.
    """
    subsets: dict[str, list[RecordedSolution]] = {}
    models: set[str] = set()
    for path in _files(places):
        rows = list(sources.numbered(path, RecordedSolution))
        processbench.check_kinds(str(path), [row for _, row in rows])
        name = _subset(rows[0][1].id)
        models = models or set(rows[0][1].scores)
        for number, row in rows:
            if reason := _differs(row, name, models):
                raise RecordInvalid(str(path), number, reason)
        if name in subsets:
            raise RecordInvalid(str(path), rows[0][0], f"another file has the subset {name} already")
        subsets[name] = sources.unique(path, rows)
    return subsets


def _differs(row: RecordedSolution, name: str, models: set[str]) -> str:
    """Why a record doesn't belong to the subset `name` with scores of `models`; empty if it does."""
    if not (subset := _subset(row.id)):
        return f"the id {row.id!r} is none of ProcessBench's, which begin with {', '.join(SUBSETS)}"
    if subset != name:
        return f"{row.id!r} is of {subset}, the first record of {name}"
    if set(row.scores) != models:
        listed = (", ".join(sorted(names)) for names in (row.scores, models))
        return "it has scores of {}, the first record of {}".format(*listed)
    return ""


def _files(places: Iterable[Path]) -> list[Path]:
    files = []
    for place in places:
        inside = sorted(place.glob("prm_scores*.jsonl*")) if place.is_dir() else [place]
        if not inside:
            raise RecordInvalid(str(place), 0, "the directory has no prm_scores….jsonl or prm_scores….jsonl.gz")
        files += inside
    return files


def _subset(id: str) -> str:
    """The subset in an id of ProcessBench, such as `gsm8k-77`; empty if there is none."""
    name = id.rpartition("-")[0]
    return name if name in SUBSETS else ""


@dataclass(frozen=True, slots=True)
class RecordedFigures:
    """Results of one PRM as in an evaluation, and by subset its best threshold and the F1 there."""

    results: Mapping[str, ThresholdFigures]
    best: Mapping[str, tuple[float, float]]


def measure(subsets: Mapping[str, Sequence[RecordedSolution]]) -> dict[str, RecordedFigures]:
    """By PRM, in the order of the first record."""
    measured = {}
    for model in next(iter(subsets.values()))[0].scores:
        scores = {name: scores_of(model, samples) for name, samples in subsets.items()}
        best = {}
        for name, samples in subsets.items():
            threshold = processbench.best_threshold(samples, scores[name])
            best[name] = threshold, processbench.figures(samples, scores[name], threshold).f1
        measured[model] = RecordedFigures(processbench.results(subsets, scores), best)
    return measured


def scores_of(model: str, samples: Sequence[RecordedSolution]) -> dict[str, tuple[float, ...]]:
    return {sample.id: sample.scores[model] for sample in samples}


def table(measured: Mapping[str, RecordedFigures]) -> str:
    """In Markdown: one row per PRM and subset, and per PRM an average over the subsets if there are several."""
    (_, *chosen) = next(iter(measured.values())).results
    columns = ["PRM", "subset", f"F1 at {THRESHOLD:g}", "errors found", "right ones accepted", "best F1, its threshold"]
    rows = []
    for model, result in measured.items():
        fixed, *others = result.results.values()
        for name, figures in fixed.subsets.items():
            threshold, best = result.best[name]
            at_fixed = figures.f1_share.in_percent, percent(figures.erroneous), percent(figures.correct)
            there = [_at(other.subsets[name].f1, other.threshold) for other in others]
            rows.append([model, name, *at_fixed, _at(best, threshold), *there])
        for other in others:
            average = _at(other.average_f1, other.threshold)
            rows.append([model, "average", f"{100 * fixed.average_f1:.1f}", "", "", "", average])
    title = "ProcessBench on recorded scores: first wrong step, in % (95 % interval)"
    return f"{title}\n\n{in_markdown([*columns, *(f'F1, threshold {way}' for way in chosen)], rows)}"


def _at(f1: float, threshold: float) -> str:
    return f"{100 * f1:.1f} at {threshold:.2f}"
