"""Scorers of solutions for evaluations: a model in this process, or a running server; and scores of a benchmark's
solutions, written as they come, so that an interrupted run can resume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console

from unprm.errors import ModelUnavailable
from unprm.pipeline import encode, run
from unprm.types import Engine, Evidence, Solution, StepScores
from unprm_client import Client, ClientError, ScoreResponse
from unprm_client.errors import NoVerdict, SolutionTooLong, TooManySteps

from .. import resumable, stage
from ..resumable import ResumableFile
from ..schema import Scores
from ..sources import Identified

SECONDS = 600.0
"""Timeout in seconds of a request to a server."""
IN_FLIGHT = 8
"""Concurrent requests to a server, which batches them."""
BATCH = 32
"""Solutions scored between two writes to disk."""
_UNSCORABLE = (SolutionTooLong, TooManySteps, NoVerdict)
"""A server's errors for a solution that has no scores, and whose steps are not blank."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies the model of stored scores, so that another model's are not mistaken for them. `digest`: as in
    `ModelDescription`."""

    model: str
    dtype: str
    digest: str | None

    @property
    def config(self) -> dict[str, str]:
        """Fields for the configuration of a file of scores. Raises `ModelUnavailable` if the digest is not known."""
        if self.digest is None:
            raise ModelUnavailable(
                f"the server does not tell the `digest` of {self.model} in /model, so scores of another model of that "
                "name could be taken for its own: update the server, or load the model with --model, without --server"
            )
        return {"model": self.model, "dtype": self.dtype, "digest": self.digest}


class Scorer(Protocol):
    """Scores the steps of solutions."""

    @property
    def identity(self) -> Identity:
        """Identity of the model; models that score differently have different ones."""
        ...

    def score(self, batch: Sequence[Solution]) -> list[Scores]:
        """Step scores of each solution. Raises `ModelUnavailable` if a server does not answer."""
        ...


class EngineScorer:
    """Scores with a model in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine, about = engine, engine.description
        self.identity = Identity(about.name, about.dtype, about.digest)

    def score(self, batch: Sequence[Solution]) -> list[Scores]:
        outcomes, _ = run(self._engine, encode(self._engine, dict(enumerate(batch))))
        return [each.values if isinstance(each, StepScores) else None for each in outcomes.values()]


class ServerScorer:
    """Scores with a running server at `url`, which may require an API key. `identity`: that of the server's default
    model when this scorer was made.

    Raises `ModelUnavailable` if the server does not answer, or answers with an error.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url, self._client = url, Client(url, api_key=api_key, timeout=SECONDS)
        try:
            self.identity = self._served()
        except ModelUnavailable:
            self.close()
            raise

    def score(self, batch: Sequence[Solution]) -> list[Scores]:
        """Step scores of each solution, with one request each. Raises `ModelUnavailable` also if the server's model has
        been swapped since this scorer was made."""
        outcomes = self._client.score_all(map(_request, batch), concurrency=IN_FLIGHT)
        scores = [_scores(outcome) for outcome in outcomes]
        if (now := self._served()) != self.identity:
            raise ModelUnavailable(f"{self._url} serves another model than at the start: {now}")
        return scores

    def close(self) -> None:
        self._client.close()

    def _served(self) -> Identity:
        try:
            model = self._client.model()
        except ClientError as error:
            raise ModelUnavailable(str(error)) from error
        return Identity(model.name, model.dtype, model.digest)


def _request(solution: Solution) -> dict[str, object]:
    if solution.evidence is None:
        return {"problem": solution.problem, "solutions": [solution.steps]}
    messages = [{"role": "assistant", "content": step} for step in solution.steps]
    trajectories = [{"messages": messages}]
    return {"problem": solution.problem, "trajectories": trajectories, "evidence": solution.evidence, "thoughts": True}


def _scores(outcome: ScoreResponse | ClientError) -> Scores:
    if isinstance(outcome, _UNSCORABLE):
        return None
    if isinstance(outcome, ClientError):
        raise ModelUnavailable(str(outcome)) from outcome
    (solution,) = outcome.solutions
    if solution.reward is None:
        raise ModelUnavailable(f"{outcome.model} gives no scores: it only checks equations of such solutions")
    return tuple(score for score in solution.step_scores or () if score is not None)


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


def score_benchmark(
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
