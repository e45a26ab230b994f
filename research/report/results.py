"""What a report shows: results of the training commands, averaged over the training seeds of each PRM."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from training import sources
from training.evaluate.metrics import Share
from training.evaluate.processbench import ThresholdFigures
from training.evaluate.right_votes import STUDIED
from unprm.errors import RecordInvalid

BySize = Mapping[int, Share]
"""By the number N of candidates."""
Key = TypeVar("Key", int, str)
T = TypeVar("T")
Run = TypeVar("Run", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class PrmVotes:
    """A PRM's votes: `accuracy[vote][N]`, and `any_right[N]`, how often any of N candidates is right."""

    seeds: int
    questions: int
    accuracy: Mapping[str, BySize]
    any_right: BySize


ProcessBench = Mapping[str, ThresholdFigures]
"""By how the threshold was chosen, always including "fixed"."""


def best_of_n(directory: Path) -> dict[str, PrmVotes]:
    """By PRM; several runs below its name are training seeds. Raises `RecordInvalid` for a file that the command could
    not have written, and for seeds that were measured on different questions."""
    return _by_prm(directory / "best-of-n", _best_of_n)


def processbench(directory: Path) -> dict[str, ProcessBench]:
    """By PRM, as `best_of_n`; the seeds must have been measured on the same subsets."""
    return _by_prm(directory / "processbench", _processbench)


def averaged(runs: Sequence[Mapping[Key, Share]]) -> dict[Key, Share]:
    """Means, and of the intervals both ends, at the keys that all runs have."""
    common = [key for key in runs[0] if all(key in run for run in runs)]
    return {key: Share(*map(fmean, zip(*(astuple(run[key]) for run in runs), strict=True))) for key in common}


class _BestOfN(BaseModel):
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
    __pydantic_extra__: dict[str, ThresholdFigures]

    model: str
    fixed: ThresholdFigures


def _by_prm(place: Path, average: Callable[[Sequence[Path]], T]) -> dict[str, T]:
    seeds = {directory.name: sorted(directory.rglob("results.json")) for directory in sorted(place.glob("*/"))}
    return {name: average(paths) for name, paths in seeds.items() if paths}


def _best_of_n(paths: Sequence[Path]) -> PrmVotes:
    runs = [_valid(path, _BestOfN) for path in paths]
    _check_equal(paths, "questions", [run.questions for run in runs])
    accuracy = {vote: averaged([run.accuracy[vote] for run in runs]) for vote in STUDIED}
    return PrmVotes(len(runs), runs[0].questions, accuracy, averaged([run.any_right for run in runs]))


def _processbench(paths: Sequence[Path]) -> ProcessBench:
    runs = [_valid(path, _ProcessBench) for path in paths]
    counts = [{name: (each.wrong, each.right) for name, each in run.fixed.subsets.items()} for run in runs]
    _check_equal(paths, "subsets", counts)
    results = [{"fixed": run.fixed, **run.__pydantic_extra__} for run in runs]
    ways = [way for way in results[0] if all(way in result for result in results)]
    return {way: _over_seeds([result[way] for result in results]) for way in ways}


def _over_seeds(seeds: Sequence[ThresholdFigures]) -> ThresholdFigures:
    """The first seed's figures, with the mean threshold and the mean F1."""
    f1 = averaged([{name: each.f1_share for name, each in seed.subsets.items()} for seed in seeds])
    subsets = {
        name: replace(seeds[0].subsets[name], f1=share.mean, f1_low=share.low, f1_high=share.high)
        for name, share in f1.items()
    }
    threshold, average_f1 = (fmean(getattr(seed, name) for seed in seeds) for name in ("threshold", "average_f1"))
    return ThresholdFigures(threshold, subsets, average_f1)


def _valid(path: Path, layout: type[Run]) -> Run:
    try:
        return layout.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise RecordInvalid(str(path), 0, sources.reason(error)) from error


def _check_equal(paths: Sequence[Path], what: str, values: Sequence[object]) -> None:
    for path, value in zip(paths, values, strict=True):
        if value != values[0]:
            raise RecordInvalid(str(path), 0, f"other {what} than {paths[0]}, a run of the same PRM, was measured on")
