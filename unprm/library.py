"""What `unprm` offers in a program: a PRM is loaded, scores, and votes, without a server."""

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from unprm import pipeline
from unprm.answers.equivalence import Comparison, Equivalence
from unprm.election.acceptance import VoteCalibration
from unprm.errors import Unscorable
from unprm.pipeline import Outcome
from unprm.types import Engine, Solution, Usage
from unprm.wire import VOTE_REQUESTS, ScoreRequest, SolutionIn, VoteResponse

T = TypeVar("T")


class LocalScorer:
    """Does the work of a request at once, by an engine in this process or without a model. As `unprm.pipeline.Scorer`;
    it never waits."""

    def __init__(self, engine: Engine | None) -> None:
        self.name = "" if engine is None else engine.description.name
        self.demo = engine.description.name if engine is not None and engine.description.demo else None
        self.max_steps, self.usage = sys.maxsize, Usage()
        self.calibration: VoteCalibration | None = None
        self._engine = engine

    async def read(self, function: Callable[[], T]) -> T:
        """The function's result."""
        return function()

    async def compare(self, answers: Sequence[str]) -> Comparison:
        """The classes of the answers."""
        return Equivalence().compare(answers)

    async def score(self, problem: str, solutions: Mapping[int, Solution], strict: bool) -> Mapping[int, Outcome]:
        """The outcome of each solution; all of them are run, in one batch."""
        if self._engine is None:
            return {}
        found, usage = pipeline.run(self._engine, pipeline.encode(self._engine, problem, solutions))
        self.usage += usage
        return found


def score(prm: Engine, problem: str, solutions: Sequence[Any]) -> list[tuple[float, ...] | None]:
    """For each solution, a score in [0, 1] of every step: the probability that all is right so far; None for a solution
    that can't be scored: one without a step, or too long for the model.

    A solution is a text, the list of its steps, or an object as in a request to the server (`unprm.wire.SolutionIn`).
    Raises `ValueError` for anything else, `pydantic.ValidationError` where it is a solution.
    """
    request = ScoreRequest.model_validate({"problem": problem, "solutions": _listed(solutions, "solutions")})
    try:
        scored = _done(pipeline.score(request, LocalScorer(prm))).solutions
    except Unscorable:
        return [None] * request.count
    return [None if each.step_scores is None else tuple(each.step_scores) for each in scored]


def vote(
    problem: str | None,
    solutions: Sequence[Any],
    strategy: str = "wrf",
    *,
    prm: Engine | None = None,
    step_scores: Sequence[Sequence[float] | None] | None = None,
    **settings: Any,
) -> VoteResponse:
    """Elects an answer among those of the solutions, as `POST /vote/{strategy}` of the server does.

    Rewards come from `prm`, which is run only if they decide, from `step_scores[i]` for solution i, or from a
    solution's own. `settings`: those of the vote (`unprm.votes`), and the request's: `aggregate`, `split` … A vote that
    needs no rewards needs neither `prm` nor a problem.

    Raises `unprm.errors.NoAnswer` if no solution states an answer, `unprm.errors.InvalidRequest` where the server
    refuses: for step scores that are not as many as the steps, for a problem or confidences that a vote lacks …; and
    `ValueError` for other bad input, and for a vote that needs rewards, without a PRM.
    """
    if strategy not in VOTE_REQUESTS:
        raise ValueError(f"{strategy!r} is no vote; there are {', '.join(VOTE_REQUESTS)}")
    candidates = _listed(solutions, "solutions")
    if step_scores is not None:
        candidates = _with_scores(candidates, _listed(step_scores, "step_scores"))
    request = VOTE_REQUESTS[strategy].model_validate({"problem": problem, "solutions": candidates, **settings})
    return _done(pipeline.vote(request, strategy, LocalScorer(prm)))


def _listed(values: Any, name: str) -> list[Any]:
    """The values as a list. Raises `ValueError` if they are none: a text is no list of letters, nor an object of
    fields."""
    try:
        if not isinstance(values, str | bytes | Mapping | BaseModel):
            return list(values)
    except TypeError:  # not iterable
        pass
    raise ValueError(f"{name} must be a list, not a {type(values).__name__}")


def _with_scores(solutions: Sequence[Any], step_scores: Sequence[Any]) -> list[Any]:
    """The solutions as objects with their step scores. Raises `ValueError` if these are not as many, or no lists."""
    if len(solutions) != len(step_scores):
        raise ValueError(f"step_scores are of {len(step_scores)} solutions, there are {len(solutions)}")
    made: list[Any] = []
    for index, (solution, scores) in enumerate(zip(solutions, step_scores, strict=True)):
        if isinstance(solution, SolutionIn):
            fields = solution.model_dump(exclude_unset=True)
        elif isinstance(solution, Mapping):
            fields = dict(solution)
        else:
            fields = {"text" if isinstance(solution, str) else "steps": solution}
        made.append(fields | {"step_scores": None if scores is None else _listed(scores, f"step_scores[{index}]")})
    return made


def _done(work: Coroutine[Any, Any, T]) -> T:
    """The result of work by a `LocalScorer`, which never waits, so that no event loop is needed."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")
