"""Metrics from recorded step scores of published PRMs on ProcessBench, without a model.

A file is JSON lines, plain or `.gz`, of one subset: `{"id": ProcessBench's, "label": …, "scores": {PRM: [score, …]}}`.
Scores may end at the first wrong step: whether it is found does not depend on later steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from training import sources
from training.evaluate import processbench
from training.evaluate.metrics import Share, percent
from training.evaluate.processbench import SUBSETS, THRESHOLD, Figures, Result
from unprm.errors import RecordInvalid

_Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(min_length=1)
    label: Annotated[int, Field(ge=-1, strict=True)]
    scores: dict[str, Annotated[list[_Score], Field(min_length=1)]] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class RecordedSolution:
    """A solution of ProcessBench (`id`), the index of its first wrong step (None if all are right), and by PRM its step
    scores, at least up to that step."""

    id: str
    label: int | None
    scores: Mapping[str, tuple[float, ...]]

    @property
    def step_labels(self) -> tuple[bool, ...]:
        """Whether each step is right, up to the first wrong one; the labels of later steps are unknown."""
        if self.label is None:
            return (True,) * len(next(iter(self.scores.values())))
        return (True,) * self.label + (False,)


def read(places: Iterable[Path]) -> dict[str, list[RecordedSolution]]:
    """Solutions by subset, from files, and from the `prm_scores*.jsonl*` files of directories.

    Raises `RecordInvalid` for an invalid record; a record of another subset than the file's first, with a label beyond
    its scores, a duplicate id, or other PRMs than the first record of all; a second file of a subset; a subset whose
    solutions are all wrong or all right; and a directory without such files.
    """
    subsets: dict[str, list[RecordedSolution]] = {}
    models: set[str] = set()
    for path in _files(places):
        rows = [(number, _parse(path, number, row)) for number, row in sources.from_file(path)]
        processbench.check_kinds(str(path), [row for _, row in rows])
        name, seen = _subset(rows[0][1].id), set[str]()
        if name in subsets:
            raise RecordInvalid(str(path), rows[0][0], f"another file has the subset {name} already")
        models = models or set(rows[0][1].scores)
        for number, row in rows:
            if (other := _subset(row.id)) != name:
                raise RecordInvalid(str(path), number, f"{row.id!r} is of {other}, the first record of {name}")
            if row.id in seen:
                raise RecordInvalid(str(path), number, f"the id {row.id!r} occurs twice")
            if set(row.scores) != models:
                listed = (", ".join(sorted(names)) for names in (row.scores, models))
                raise RecordInvalid(str(path), number, "it has scores of {}, the first record of {}".format(*listed))
            seen.add(row.id)
        subsets[name] = [row for _, row in rows]
    return subsets


def _files(places: Iterable[Path]) -> list[Path]:
    files = []
    for place in places:
        found = sorted(place.glob("prm_scores*.jsonl*")) if place.is_dir() else [place]
        if not found:
            raise RecordInvalid(str(place), 0, "the directory has no prm_scores….jsonl or prm_scores….jsonl.gz")
        files += found
    return files


def _parse(path: Path, number: int, row: object) -> RecordedSolution:
    try:
        valid = _Row.model_validate(row)
        _subset(valid.id)
    except ValueError as error:
        raise RecordInvalid(str(path), number, sources.reason(error)) from error
    lengths = {len(scores) for scores in valid.scores.values()}
    if len(lengths) > 1:
        raise RecordInvalid(str(path), number, f"its PRMs scored different numbers of steps: {sorted(lengths)}")
    if valid.label >= (steps := lengths.pop()):
        raise RecordInvalid(str(path), number, f"label {valid.label}, but only {steps} steps have scores")
    label = None if valid.label < 0 else valid.label
    return RecordedSolution(valid.id, label, {name: tuple(scores) for name, scores in valid.scores.items()})


def _subset(id: str) -> str:
    """The subset in an id of ProcessBench, such as `gsm8k-77`; raises `ValueError` if there is none."""
    name = id.rpartition("-")[0]
    if name not in SUBSETS:
        raise ValueError(f"the id {id!r} is none of ProcessBench's, which begin with {', '.join(SUBSETS)}")
    return name


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of one PRM as in an evaluation, and by subset its best threshold and the F1 there."""

    results: Mapping[str, Result]
    best: Mapping[str, tuple[float, float]]


def measure(subsets: Mapping[str, Sequence[RecordedSolution]]) -> dict[str, Measured]:
    """Results by PRM, in the order of the first record."""
    return {model: _measure(model, subsets) for model in next(iter(subsets.values()))[0].scores}


def scores_of(model: str, samples: Sequence[RecordedSolution]) -> dict[str, tuple[float, ...]]:
    """One PRM's step scores by sample id."""
    return {sample.id: sample.scores[model] for sample in samples}


def _measure(model: str, subsets: Mapping[str, Sequence[RecordedSolution]]) -> Measured:
    scores = {name: scores_of(model, samples) for name, samples in subsets.items()}
    best = {}
    for name, samples in subsets.items():
        threshold = processbench.best_threshold(samples, scores[name])
        best[name] = threshold, processbench.figures(samples, scores[name], threshold).f1
    return Measured(processbench.results(subsets, scores), best)


def table(measured: Mapping[str, Measured]) -> Table:
    """One row per PRM and subset, and per PRM an average over the subsets if there are several."""
    shown = Table(title="ProcessBench on recorded scores: first wrong step, in percent")
    shown.add_column("PRM", overflow="fold")
    for name in ("subset", f"F1 at {THRESHOLD:g}", "wrong ones found", "right ones kept", "best F1, threshold"):
        shown.add_column(name, justify="left" if name == "subset" else "right", overflow="fold")
    (_, *chosen) = next(iter(measured.values())).results
    for way in chosen:
        shown.add_column(f"F1, threshold {way}", justify="right", overflow="fold")
    for model, result in measured.items():
        fixed, *others = result.results.values()
        for name, figures in fixed.subsets.items():
            threshold, best = result.best[name]
            there = [_at(other.subsets[name], other.threshold) for other in others]
            shown.add_row(model, name, *_fixed(figures), f"{100 * best:.1f} at {threshold:.2f}", *there)
        for other in others:
            average = f"{100 * other.average_f1:.1f} at {other.threshold:.2f}"
            shown.add_row(model, "average", f"{100 * fixed.average_f1:.1f}", "", "", "", average)
        shown.add_section()
    return shown


def _fixed(figures: Figures) -> tuple[str, str, str]:
    return (
        Share(figures.f1, figures.f1_low, figures.f1_high).in_percent,
        percent(figures.erroneous),
        percent(figures.correct),
    )


def _at(figures: Figures, threshold: float) -> str:
    return f"{100 * figures.f1:.1f} at {threshold:.2f}"
