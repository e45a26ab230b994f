"""Takes votes: parse a request's solutions, compare their answers, score them if a vote needs it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from unprm.election.acceptance import acceptance
from unprm.election.ballot import Ballot, ParsedCandidates, Scores, parse, score_response
from unprm.election.decide import needed_signal
from unprm.errors import InvalidRequest, NoAnswer, Unscorable
from unprm.mini.domain import about, knows
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import Strategy
from unprm.wire import Candidates, Demonstration, RiskTerms, ScoreResponse

from . import scoring
from .context import Context
from .models.model import Model
from .observe.tracing import span
from .service import Service
from .settings import Settings

_NO_PROBLEM = (
    "no answer has at least half of all candidates, so rewards decide: send the problem, or step_scores with every "
    "solution"
)


class NoConfidence(InvalidRequest):
    """A vote by confidence among solutions of which none with an answer has a confidence."""

    def __init__(self) -> None:
        super().__init__(
            "confidences decide this vote, and no solution with an answer has one: send `confidence` or "
            "`token_logprobs`",
            "/solutions",
        )


async def score_steps(service: Service, request: Candidates, context: Context) -> ScoreResponse:
    """The step scores of every solution; the request has a problem, or all scores. Raises `Unscorable` if none can be
    scored, and the errors of scoring."""
    with service.models.chosen(request.model) as models:
        if not request.scored:  # refuses before any text is read
            context.claims.check_room(models, list(request.lengths))
        with _pointing(request):
            parsed = await _parse(service, request, context)
            scores = await _scores(models, request, parsed, context)
        return score_response(request, parsed.solutions, scores, name(models), context.usage)


def name(models: Sequence[Model]) -> str:
    """The name of one or several models, as in responses."""
    return "+".join(model.name for model in models)


async def ballot(
    service: Service,
    models: Sequence[Model],
    request: Candidates,
    strategies: Sequence[Strategy],
    context: Context,
) -> Ballot:
    """The ballot for these votes, scored if one of them needs it.

    Raises `NoAnswer`; `Unscorable` and `NoConfidence` if no solution with an answer has a reward or confidence, and a
    vote needs one; `InvalidRequest` without a problem to score by, and for a risk that no calibration fits; and the
    errors of scoring.
    """
    risk = request.risk if isinstance(request, RiskTerms) else None
    scorer = None if request.scored else name(models)
    judged = acceptance(service.vote_calibration, risk, strategies, request.terms, scorer, request.aggregate)
    with _pointing(request):
        parsed = await _parse(service, request, context)
    with span("answers"):
        classes, compared_as_text = await service.classes(parsed.solutions, context)
    solutions = parsed.solutions
    if all(number is None for number in classes):
        if request.trajectories is None:
            raise NoAnswer(len(classes))
        # without answers each trajectory stands for itself, so that rewards elect one
        classes = list(range(len(classes)))
        solutions = [replace(each, answer=f"trajectory {k}") for k, each in enumerate(solutions)]
    needed = {needed_signal(strategy, classes, request.terms) for strategy in strategies}
    scored = "reward" in needed
    if scored and parsed.missing and request.problem is None:
        raise InvalidRequest(_NO_PROBLEM, "/problem")
    scores = Scores(None, parsed.unscorable)
    if scored or parsed.given:
        answered = [index for index, number in enumerate(classes) if number is not None]
        with _pointing(request):
            scores = await _scores(models, request, parsed, context, answered if scored else None)
    found = Ballot(request, solutions, classes, scores, compared_as_text, judged)
    if needed == {"confidence"} and found.confidences is None:
        raise NoConfidence
    return found


@contextmanager
def _pointing(request: Candidates) -> Iterator[None]:
    """Errors about a candidate point to where it was sent."""
    try:
        yield
    except Unscorable as error:
        if request.trajectories is not None:
            error.pointer = error.pointer.replace("/solutions", "/trajectories", 1)
        raise


async def _parse(service: Service, request: Candidates, context: Context) -> ParsedCandidates:
    """Splits the texts and extracts their answers. Raises `Unscorable` if the request says to refuse."""
    context.solutions = request.count
    parsed = await service.read(context, partial(parse, request, service.settings.max_steps))
    if parsed.unscorable and request.on_invalid == "refuse":
        raise parsed.unscorable[min(parsed.unscorable)]
    return parsed


async def _scores(
    models: Sequence[Model],
    request: Candidates,
    parsed: ParsedCandidates,
    context: Context,
    electable: Sequence[int] | None = None,
) -> Scores:
    """The scores of the solutions; the models run only for those that came without.

    Raises `Unscorable`, that of the first, if none of the `electable` candidates (indices, ascending; by default all)
    has scores, or if the request says to refuse."""
    steps = [solution.step_scores for solution in parsed.solutions]
    scores = Scores(steps, parsed.unscorable)
    if missing := parsed.missing:
        assert request.problem is not None, "checked before"
        computed = await scoring.score(models, request.problem, missing, request.on_invalid == "refuse", context)
        for index, each in computed.steps.items():
            steps[index] = each
        known = demonstration(models, request.problem) if computed.steps else None
        unscorable = {**parsed.unscorable, **computed.unscorable}
        scores = Scores(steps, unscorable, computed.threshold, known, computed.intervals)
    needed = range(len(steps)) if electable is None else electable
    if not any(steps[index] for index in needed):
        raise scores.unscorable[needed[0]]
    return scores


def default_strategy(settings: Settings, models: Sequence[Model], problem: str | None, *, named: bool) -> Strategy:
    """The vote for a request that names none: by rewards and frequency, but by frequency alone where the rewards would
    be those of a demonstration outside its domain that neither the operator nor the request (`named`) asked for.

    Raises `ModelUnavailable`.
    """
    if named or settings.names_model or not _demonstrations(models) or _knows(problem):
        return DEFAULT_STRATEGY
    return "majority"


def demonstration(models: Sequence[Model], problem: str | None) -> Demonstration | None:
    """The notice about scores by these models; None if none of them is a demonstration."""
    found = _demonstrations(models)
    return about(found[0].name, problem) if found else None


def _demonstrations(models: Sequence[Model]) -> list[Model]:
    return [model for model in models if model.engine.description.demo]


def _knows(problem: str | None) -> bool:
    return problem is not None and knows(problem)
