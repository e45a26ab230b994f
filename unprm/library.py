"""What `unprm` offers in a program: a PRM is loaded, scores, and votes, without a server."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from unprm import pipeline
from unprm.answers.equivalence import Equivalence
from unprm.election.decide import RewardsMissing
from unprm.errors import Unscorable
from unprm.pipeline import Compare, MatchPairs, Score, Scorer, Work, encode, run
from unprm.types import Engine, Usage
from unprm.validation_messages import listed, summary, unknown, validation_errors
from unprm.wire import MAX_PAIRS, VOTE_REQUESTS, Grade, GradeRequest, ScoreRequest, VoteResponse, with_scores

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")


def score(prm: Engine, problem: str, solutions: Sequence[Any]) -> list[tuple[float | None, ...] | None]:
    """For each solution, the probability at each step that all is right so far; None for a solution that can't be
    scored. Outside a demonstration's domain, the marks of `unprm.checks`.

    A solution is a text, a list of steps, or an object as in a request (`unprm.wire.SolutionIn`). Raises `ValueError`.
    """
    request = _request(ScoreRequest, {"problem": problem, "solutions": listed(solutions, "solutions")})
    scorer = LocalScorer(prm)
    try:
        scored = scorer.finish(pipeline.score(request, scorer)).solutions
    except Unscorable:
        return [None] * request.count
    return [None if solution.step_scores is None else tuple(solution.step_scores) for solution in scored]


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
    solution's own. `settings`: of the vote (`unprm.votes`), and of the request: `aggregate`, `split` …

    Raises `unprm.errors.NoAnswer`, `unprm.errors.InvalidRequest` where the server refuses, and `ValueError` for other
    bad input, and for a vote that needs rewards, without a PRM.
    """
    if strategy not in VOTE_REQUESTS:
        raise ValueError(f"{strategy!r} {unknown(strategy, VOTE_REQUESTS, 'a vote')}")
    candidates = listed(solutions, "solutions") if step_scores is None else with_scores(solutions, step_scores)
    request = _request(VOTE_REQUESTS[strategy], {"problem": problem, "solutions": candidates, **settings})
    scorer = LocalScorer(prm)
    try:
        return scorer.finish(pipeline.vote(request, strategy, scorer))
    except RewardsMissing:
        raise ValueError(
            f'{strategy} needs rewards to decide: give prm=, or step_scores=, or take strategy="majority", which '
            "needs none"
        ) from None


def _request(form: type[R], sent: dict[str, Any]) -> R:
    try:
        return form.model_validate(sent)
    except ValidationError as error:
        raise ValueError(summary(validation_errors(error, sent, form))) from None


def grade(pairs: Sequence[Any], *, extraction: str = "auto") -> list[Grade]:
    """Whether the answer of each pair is right, as `POST /grade` says it. A pair has `gold`, the right answer or a
    list, and an `answer`, or a `text` to find it in (`unprm.wire.PairIn`). Raises `ValueError`."""
    sent, found = listed(pairs, "pairs"), list[Grade]()
    for start in range(0, len(sent), MAX_PAIRS):
        request = _request(GradeRequest, {"pairs": sent[start : start + MAX_PAIRS], "extraction": extraction})
        found += LocalScorer().finish(pipeline.grade(request.pairs, request.extraction))
    return found


class LocalScorer(Scorer):
    """Finishes the work of a request at once, by an engine in this process, or without any."""

    def __init__(self, engine: Engine | None = None) -> None:
        super().__init__({} if engine is None else {engine.description.name: engine})
        self.name = "" if engine is None else engine.description.name
        self.usage = Usage()
        self._engine = engine

    def finish(self, work: Work[T]) -> T:
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
                case Score(solutions) if self._engine is not None:
                    reply, usage = run(self._engine, encode(self._engine, solutions))
                    self.usage += usage
                case Score():
                    reply = {}
                case None:
                    reply = None
