"""Who scores the solutions of a request, and the driver that finishes its work at once in a program."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from unprm.answers.equivalence import Equivalence, Pair
from unprm.election import acceptance
from unprm.errors import (
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
    Usage,
)
from unprm.votes.registry import Strategy
from unprm.wire import Candidates

T = TypeVar("T")

Outcome = StepScores | Unscorable
"""What a solution scores, or why it can't be scored."""


class Compare(NamedTuple):
    """Asks for the classes of answers: a `Comparison`."""

    answers: Sequence[str]


class MatchPairs(NamedTuple):
    """Asks whether the answer of each pair is right: a list of `Match`. At most `MAX_SOLUTIONS` pairs."""

    pairs: Sequence[Pair]


class Score(NamedTuple):
    """Asks for the outcome of each solution: a mapping by index, in the order of the solutions. `strict`: a solution
    that can't be scored refuses the whole request, so the others need not be scored."""

    solutions: Mapping[int, Solution]
    strict: bool


Work = Generator[Compare | MatchPairs | Score, Any, T]
"""A request's work in `unprm.pipeline`: a generator of questions, each sent its answer by a driver
(`LocalScorer.finish`, or the server's), as in httpx's `auth_flow`. Between two questions it reads texts of the caller's
size."""


class Scorer(ABC):
    """Who scores the solutions of one request: `name`, of the model, or of several; empty if there is none, so that
    only scores that are sent count. `usage`: what the request has taken so far. `max_steps`: of a solution.
    """

    name: str
    usage: Usage
    max_steps = sys.maxsize

    @property
    @abstractmethod
    def demo(self) -> str | None:
        """The name of a demonstration among the models."""

    def on_election(self, request: Candidates, strategies: Sequence[Strategy]) -> acceptance.OnElection | None:
        """What is called with each election of these votes, if anything is. Raises `InvalidRequest` for a request that
        can't be followed up as it asks."""
        return acceptance.on_election(None, request, strategies, self.name)


class LocalScorer(Scorer):
    """Finishes the work of a request at once, by an engine in this process, or without any."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.name = "" if engine is None else engine.description.name
        self.usage = Usage()
        self._engine = engine

    @property
    def demo(self) -> str | None:
        return self.name if self._engine is not None and self._engine.description.demo else None

    def finish(self, work: Work[T]) -> T:
        """The result of the work, after each of its questions was answered."""
        reply: Any = None
        while True:
            try:
                asked = work.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            match asked:
                case Compare(answers):
                    reply = Equivalence().compare(answers)
                case MatchPairs(pairs):
                    reply = Equivalence().match(pairs)
                case Score(solutions):
                    reply = self._score(solutions)

    def _score(self, solutions: Mapping[int, Solution]) -> Mapping[int, Outcome]:
        """Nothing without a model."""
        if self._engine is None:
            return {}
        found, usage = run(self._engine, encode(self._engine, solutions))
        self.usage += usage
        return found


def encode(
    engine: Engine, solutions: Mapping[int, Solution], scope: str = "", too_long: dict[str, int] | None = None
) -> dict[int, Encoded | Unscorable]:
    """The model input of each solution, by its index; the error for a solution beyond the model's window, which is not
    encoded if its characters are more than the window's tokens can hold. `scope`: as of `Encoded`. `too_long`: gets the
    problems that alone are beyond the window, with their tokens; further solutions of them are not encoded either."""
    format, limit = engine.format, engine.description.max_tokens
    too_long = {} if too_long is None else too_long
    inputs: dict[int, Encoded | Unscorable] = {}
    for index, solution in solutions.items():
        least = too_long.get(solution.problem, -(-solution_length(solution) // format.longest_token))
        if least > limit:
            inputs[index] = SolutionTooLong(index, least, limit, exact=False)
            continue
        if solution.prompt is not None:
            item = format.at_tags(format.tokenize(solution.prompt))
        else:
            item = format.encode(solution.problem, solution.steps)
        if len(item.ids) <= limit:
            inputs[index] = replace(item, scope=scope, evidence=solution.evidence)
            continue
        inputs[index] = SolutionTooLong(index, len(item.ids), limit)
        if len(solution.problem) > limit and (alone := len(format.encode(solution.problem, ("1",)).ids)) > limit:
            too_long[solution.problem] = alone
    return inputs


def solution_length(solution: Solution) -> int:
    """Characters of problem plus solution; or those of a prompt, or its token ids."""
    return sum(map(len, (solution.problem, *solution.steps, solution.prompt.content if solution.prompt else "")))


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
