"""What does the work of a request: a model in this process, or none."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from unprm.answers.equivalence import Comparison, Equivalence, Match, Pair
from unprm.election.acceptance import VoteCalibration
from unprm.errors import (
    NoLogProbs,
    NoVerdict,
    SolutionTooLong,
    Unscorable,
)
from unprm.types import (
    Encoded,
    Engine,
    ModelDescription,
    Solution,
    StepScores,
    Support,
    Usage,
)

T = TypeVar("T")

Outcome = StepScores | Support | Unscorable
"""What a solution scores, by a model or by the other candidates, or why it can't be scored."""


class Scorer:
    """Does the work of one request at once, by an engine in this process, or without any: then only scores that are
    sent count. A server has one that works in turns with those of other requests.

    `name`: of the model, or of several; empty if there is none. `max_steps`: of a solution. `calibration`: by which
    elected answers are accepted.
    """

    max_steps = sys.maxsize
    calibration: VoteCalibration | None = None

    def __init__(self, engine: Engine | None = None) -> None:
        self.name = "" if engine is None else engine.description.name
        self._engine, self._usage = engine, Usage()

    @property
    def demo(self) -> str | None:
        """The name of a demonstration among the models."""
        return self.name if self._engine is not None and self._engine.description.demo else None

    @property
    def by_agreement(self) -> bool:
        """Whether steps are scored by `unprm.agreement`, which makes no rewards."""
        return False

    @property
    def usage(self) -> Usage:
        return self._usage

    async def read(self, function: Callable[[], T]) -> T:
        """The result of a function that reads all texts of the request."""
        return function()

    async def compare(self, answers: Sequence[str]) -> Comparison:
        return Equivalence().compare(answers)

    async def match(self, pairs: Sequence[Pair]) -> list[Match]:
        """Whether the answer of each pair, at most `MAX_SOLUTIONS` of them, is right."""
        return Equivalence().match(pairs)

    async def score(self, solutions: Mapping[int, Solution], strict: bool) -> Mapping[int, Outcome]:
        """The outcome of each solution, by its index, and in their order; nothing without a model. `strict`: if one of
        them can't be scored the request is refused, so the others need not be."""
        if self._engine is None:
            return {}
        found, usage = run(self._engine, encode(self._engine, solutions))
        self._usage += usage
        return found


def encode(engine: Engine, solutions: Mapping[int, Solution], scope: str = "") -> dict[int, Encoded | Unscorable]:
    """The model input of each solution, by its index; the error for one beyond the model's window, or without the
    log-probabilities that the model scores by. `scope`: as of `Encoded`."""
    limit = engine.description.max_tokens
    inputs: dict[int, Encoded | Unscorable] = {}
    for index, solution in solutions.items():
        if solution.prompt is not None:
            item = engine.format.at_tags(engine.format.tokenize(solution.prompt))
        else:
            item = engine.format.encode(solution.problem, solution.steps)
        if engine.description.by_logprobs:
            if solution.logprobs is None or not all(solution.logprobs):
                inputs[index] = NoLogProbs(index)
                continue
            item = replace(item, logprobs=solution.logprobs)
        too_long = SolutionTooLong(index, len(item.ids), limit) if len(item.ids) > limit else None
        inputs[index] = too_long or replace(item, scope=scope, evidence=solution.evidence)
    return inputs


def run(engine: Engine, inputs: Mapping[int, Encoded | Unscorable]) -> tuple[dict[int, Outcome], Usage]:
    """What each solution scores, from its model input, in one batch, and what that took."""
    readable = {index: item for index, item in inputs.items() if isinstance(item, Encoded)}
    scores = engine.score(list(readable.values()))
    return outcomes(inputs, dict(zip(readable, scores, strict=True))), Usage.of(scores)


def outcomes(inputs: Mapping[int, Encoded | Unscorable], scores: Mapping[int, StepScores]) -> dict[int, Outcome]:
    """The scores of each solution, or why it has none: it has no model input, or a judge gave no verdict on a step."""
    found: dict[int, Outcome] = {}
    for index, item in inputs.items():
        if isinstance(item, Unscorable):
            found[index] = item
        elif (each := scores[index]).missing:
            found[index] = NoVerdict(index, each.missing, len(each.values))
        else:
            found[index] = each
    return found


def averaged(scores: Sequence[Sequence[StepScores]], models: Sequence[ModelDescription]) -> list[StepScores]:
    """The mean of several models' calibrated step scores of each solution."""
    calibrations = [model.calibration for model in models]
    return [
        StepScores(
            tuple(
                sum(calibrate(value) for calibrate, value in zip(calibrations, step, strict=True)) / len(models)
                for step in zip(*(each.values for each in solution), strict=True)
            ),
            missing=max(each.missing for each in solution),
        )
        for solution in zip(*scores, strict=True)
    ]
