"""Contents of a report: findings, and measurements averaged over the training seeds of each PRM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt, StrictStr, model_validator

from training.evaluate.metrics import Share
from training.evaluate.processbench import Result
from training.evaluate.records import JudgedCandidates
from training.settings import WrfSettings


class Finding(BaseModel):
    """A question, its answer in words, and a table that supports it: each row has as many cells as `columns`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    answer: str
    columns: list[str]
    rows: list[list[StrictStr | StrictInt | StrictFloat]]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row has not as many cells as there are columns ({len(self.columns)})")
        return self


@dataclass(frozen=True, slots=True)
class Measured:
    """A share in [0, 1], averaged over the seeds of a PRM.

    `share`: the mean, and the seeds' 95 % intervals with both ends averaged; `seeds`: the share of each seed.
    """

    share: Share
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, shares: Sequence[Share]) -> Self:
        """Averages over at least one seed."""
        mean, low, high = (fmean(getattr(share, name) for share in shares) for name in ("mean", "low", "high"))
        return cls(Share(mean, low, high), tuple(share.mean for share in shares))


BySize = dict[int, Measured]
"""By the number N of candidates."""


def over_seeds(runs: Sequence[Mapping[int, Share]]) -> BySize:
    """Averages at the sizes that all runs have, in ascending order."""
    sizes = set.intersection(*(set(run) for run in runs))
    return {size: Measured.of([run[size] for run in runs]) for size in sorted(sizes)}


@dataclass(frozen=True, slots=True)
class BestOfN:
    """A PRM's votes: `accuracy[vote][N]`, and `any_right[N]`, how often any of N candidates is right. `judged`: the
    candidates of one seed, by question; empty if they were not kept. `wrf`: that seed's settings."""

    name: str
    seeds: int
    questions: int
    accuracy: dict[str, BySize]
    any_right: BySize
    judged: tuple[JudgedCandidates, ...]
    wrf: WrfSettings


@dataclass(frozen=True, slots=True)
class ProcessBench:
    """A PRM on ProcessBench. `at`: the result of each seed, by how the threshold was chosen, always including "fixed";
    all have the same subsets."""

    name: str
    at: dict[str, tuple[Result, ...]]

    @property
    def fixed(self) -> tuple[Result, ...]:
        """The results at the fixed threshold."""
        return self.at["fixed"]


@dataclass(frozen=True, slots=True)
class Found:
    """All parts of a report, each empty if missing; runs are sorted by name."""

    findings: tuple[Finding, ...]
    best_of_n: tuple[BestOfN, ...]
    processbench: tuple[ProcessBench, ...]
