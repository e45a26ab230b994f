"""Step scores of a benchmark's solutions, written as they come, so that an interrupted run can resume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console

from unprm.types import Evidence, Solution

from .. import resumable, stage
from ..resumable import ResumableFile
from ..schema import Scores
from ..sources import Identified
from .scorers import Scorer

BATCH = 32
"""Solutions scored between two writes to disk."""


class BenchmarkSample(Identified, Protocol):
    """A benchmark's solution; its id is unique in its subset."""

    @property
    def problem(self) -> str: ...

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps to score, at least one."""
        ...


@dataclass(frozen=True, slots=True)
class SolutionScores:
    """The step scores of a solution of a benchmark (`unprm evaluate processbench` or `prmbench`)."""

    id: str
    scores: Scores


S = TypeVar("S", bound=BenchmarkSample)


def score(
    benchmark: str,
    subsets: Mapping[str, Sequence[S]],
    fields: Callable[[S], object],
    scorer: Scorer,
    output: Path,
    console: Console,
    evidence: Evidence | None = None,
) -> dict[str, dict[str, Scores]]:
    """Scores of all samples by subset and id, a file `SUBSET.jsonl` each. `benchmark` and a digest of the `fields` of a
    subset's samples are in its configuration. `evidence`: as in `Solution`.

    Raises `OutputMismatch` if `output` holds scores of another model, even of the same name, or of other samples.
    """
    scores_by_subset = {}
    for name, samples in subsets.items():
        digest = resumable.digest([fields(sample) for sample in samples])
        config = {"stage": benchmark, **scorer.identity.config, "subset": name, "samples": digest}
        with ResumableFile(output / f"{name}.jsonl", SolutionScores, config) as done:
            todo = [sample for sample in samples if sample.id not in done.records]
            with stage.Board(console, f"scoring {name}", len(samples), len(samples) - len(todo)) as board:
                for start in range(0, len(todo), BATCH):
                    batch = todo[start : start + BATCH]
                    scores = scorer.score(
                        [Solution(each.steps, problem=each.problem, evidence=evidence) for each in batch]
                    )
                    for sample, step_scores in zip(batch, scores, strict=True):
                        done.append(SolutionScores(sample.id, step_scores))
                        board.advance()
            scores_by_subset[name] = {key: record.scores for key, record in done.records.items()}
    return scores_by_subset
