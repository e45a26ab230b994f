"""Reads the results that the training commands wrote below a directory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from training import sources
from training.evaluate import judging
from training.evaluate.metrics import Share
from training.evaluate.processbench import Result
from training.evaluate.right_votes import STUDIED
from training.settings import WrfSettings
from unprm.errors import RecordInvalid
from unprm.votes.wrf import Normalization

from .found import BestOfN, Finding, Found, ProcessBench, over_seeds

LAYOUT = {
    "findings": "findings.json",
    "best_of_n": "best-of-n/NAME/…/results.json",
    "processbench": "processbench/NAME/…/results.json",
}
"""Path of each part of `Found` below the directory."""

T = TypeVar("T")


def read(directory: Path) -> Found:
    """All results below the directory.

    Raises `RecordInvalid` for a file that the commands could not have written, for seeds of one PRM that were measured
    on different data, and if there are no results at all.
    """
    found = Found(
        findings=_findings(directory / LAYOUT["findings"]),
        best_of_n=_by_prm(directory / "best-of-n", _best_of_n),
        processbench=_by_prm(directory / "processbench", _processbench),
    )
    if not any((found.findings, found.best_of_n, found.processbench)):
        raise RecordInvalid(str(directory), 0, f"nothing to report; expected any of {', '.join(LAYOUT.values())}")
    return found


class _BestOfN(BaseModel):
    alpha: float
    normalization: Normalization = "minmax"  # older results do not have this field
    questions: int = Field(ge=1)
    accuracy: dict[str, dict[int, Share]]
    any_right: Annotated[dict[int, Share], Field(min_length=1)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if any(self.accuracy.get(vote, {}).keys() != self.any_right.keys() for vote in STUDIED):
            raise ValueError("the votes and `any_right` are not all there, at the same sizes")
        return self


class _ProcessBench(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Result]

    model: str
    fixed: Result


def _findings(path: Path) -> tuple[Finding, ...]:
    return tuple(_valid(path, TypeAdapter(list[Finding]))) if path.exists() else ()


def _by_prm(place: Path, average: Callable[[str, Sequence[Path]], T]) -> tuple[T, ...]:
    seeds = {directory.name: sorted(directory.rglob("results.json")) for directory in sorted(place.glob("*/"))}
    return tuple(average(name, paths) for name, paths in seeds.items() if paths)


def _best_of_n(name: str, paths: Sequence[Path]) -> BestOfN:
    runs = [_valid(path, TypeAdapter(_BestOfN)) for path in paths]
    _check_equal(paths, "questions", [run.questions for run in runs])
    kept = next((k for k, path in enumerate(paths) if path.with_name("candidates.jsonl").exists()), None)
    return BestOfN(
        name,
        len(runs),
        runs[0].questions,
        {vote: over_seeds([run.accuracy[vote] for run in runs]) for vote in STUDIED},
        over_seeds([run.any_right for run in runs]),
        () if kept is None else tuple(judging.kept(paths[kept].parent)),
        WrfSettings(runs[kept or 0].alpha, runs[kept or 0].normalization),
    )


def _processbench(name: str, paths: Sequence[Path]) -> ProcessBench:
    runs = [_valid(path, TypeAdapter(_ProcessBench)) for path in paths]
    _check_equal(
        paths, "subsets", [{key: (subset.wrong, subset.right) for key, subset in r.fixed.subsets.items()} for r in runs]
    )
    results = [{"fixed": run.fixed, **run.__pydantic_extra__} for run in runs]
    ways = [way for way in results[0] if all(way in result for result in results)]
    return ProcessBench(name, {way: tuple(result[way] for result in results) for way in ways})


def _valid(path: Path, layout: TypeAdapter[T]) -> T:
    try:
        return layout.validate_json(path.read_bytes())
    except ValidationError as error:
        raise RecordInvalid(str(path), 0, sources.reason(error)) from error


def _check_equal(paths: Sequence[Path], what: str, values: Sequence[object]) -> None:
    for path, value in zip(paths, values, strict=True):
        if value != values[0]:
            raise RecordInvalid(str(path), 0, f"other {what} than {paths[0]}, a run of the same PRM, was measured on")
