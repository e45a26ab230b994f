"""What `unprm` offers in a program: a PRM is loaded, scores, and votes, without a server."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from unprm.answers.equivalence import Equivalence
from unprm.election.ballot import Ballot, Scores, parse
from unprm.election.decide import needed_signal
from unprm.errors import NoVerdict, SolutionTooLong, Unscorable
from unprm.mini.domain import about
from unprm.types import Engine, Interval, Solution, Usage
from unprm.wire import VOTE_REQUESTS, RiskTerms, ScoreRequest, SolutionIn, VoteResponse


def score(prm: Engine, problem: str, solutions: Sequence[Any]) -> list[tuple[float, ...] | None]:
    """For each solution, a score in [0, 1] of every step: the probability that all is right so far; None for a solution
    without a step, or too long for the model.

    A solution is a text, the list of its steps, or an object as in a request to the server (`unprm.wire.SolutionIn`).
    Raises `ValueError` for anything else, `pydantic.ValidationError` where it is a solution.
    """
    request = ScoreRequest.model_validate({"problem": problem, "solutions": _listed(solutions, "solutions")})
    steps, *_ = _scores(prm, problem, parse(request).missing, {})
    return [steps.get(index) for index in range(request.count)]


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

    Raises `unprm.errors.NoAnswer` if no solution states an answer, `unprm.errors.InvalidRequest` for step scores that
    are not as many as the steps, and `ValueError` for other bad input, and for a vote whose rewards or confidences are
    missing.
    """
    if strategy not in VOTE_REQUESTS:
        raise ValueError(f"{strategy!r} is no vote; there are {', '.join(VOTE_REQUESTS)}")
    candidates = _listed(solutions, "solutions")
    if step_scores is not None:
        candidates = _with_scores(candidates, _listed(step_scores, "step_scores"))
    request = VOTE_REQUESTS[strategy].model_validate({"problem": problem, "solutions": candidates, **settings})
    if isinstance(request, RiskTerms) and request.risk is not None:
        raise ValueError("risk needs a server with --vote-calibration: a vote without one accepts nothing")
    parsed = parse(request)
    compared = Equivalence().compare([each.answer for each in parsed.solutions if each.answer is not None])
    names = iter(compared.classes)
    classes = [None if each.answer is None else next(names) for each in parsed.solutions]
    by_reward = needed_signal(strategy, classes, request.terms) == "reward"
    steps = {index: each.step_scores for index, each in enumerate(parsed.solutions) if each.step_scores is not None}
    usage, unscorable, known, intervals = Usage(), dict(parsed.unscorable), None, dict[int, tuple[Interval, ...]]()
    if by_reward and parsed.missing and prm is not None:
        if problem is None:
            raise ValueError("rewards decide this vote, and the PRM needs the problem to score: problem is None")
        computed, usage, intervals = _scores(prm, problem, parsed.missing, unscorable)
        steps |= computed
        if not steps:
            raise unscorable[min(unscorable)]
        known = about(prm.description.name, problem) if prm.description.demo else None
    used = [steps.get(index) for index in range(len(classes))] if by_reward or parsed.given else None
    scores = Scores(used, unscorable, known, intervals)
    stated = [index for index, name in enumerate(classes) if name is not None]
    ballot = Ballot(request, parsed.solutions, classes, scores, [stated[index] for index in compared.as_text])
    return ballot.vote(strategy, request.terms, "" if prm is None else prm.description.name, usage)


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


def _scores(
    prm: Engine, problem: str, solutions: Mapping[int, Solution], unscorable: dict[int, Unscorable]
) -> tuple[dict[int, tuple[float, ...]], Usage, dict[int, tuple[Interval, ...]]]:
    """Step scores by index, the tokens they took, and the scores' intervals; adds to `unscorable` why a solution has
    none."""
    encoded = {index: prm.format.encode(problem, solution.steps) for index, solution in solutions.items()}
    limit = prm.description.max_tokens
    for index, item in encoded.items():
        if len(item.ids) > limit:
            unscorable[index] = SolutionTooLong(index, len(item.ids), limit)
    fitting = {index: item for index, item in encoded.items() if index not in unscorable}
    batch = prm.score(list(fitting.values()))
    for index, unread in zip(fitting, batch.unread or (), strict=False):
        if unread:
            unscorable[index] = NoVerdict(index, unread, len(solutions[index].steps))
    tokens, computed = sum(batch.tokens or (len(item.ids) for item in fitting.values())), sum(batch.computed)
    found = {index: each for index, each in zip(fitting, batch.scores, strict=True) if index not in unscorable}
    intervals = dict(zip(fitting, batch.intervals or (), strict=False))
    return found, Usage(tokens, computed, tokens - computed), intervals
