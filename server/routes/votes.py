"""The routes that score, preview and vote.

A vote parses a request's solutions, compares their answers, and scores them if it needs that.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter

from unprm.election.acceptance import acceptance
from unprm.election.ballot import Ballot, ParsedCandidates, Scores, parse, score_response, why_unscorable
from unprm.election.decide import needed_signal
from unprm.errors import InvalidRequest, NoAnswer, Unscorable
from unprm.mini.domain import about
from unprm.types import DEFAULT_STRATEGY, Encoded, Solution
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import (
    VOTE_REQUESTS,
    Candidates,
    CompareRequest,
    CompareResponse,
    DefaultVoteRequest,
    Demonstration,
    PreviewRequest,
    PreviewResponse,
    RiskTerms,
    ScoreRequest,
    ScoreResponse,
    VoteResponse,
)

from .. import scoring
from ..admission import Context, TheContext
from ..models.model import Model
from ..observe import span
from ..service import Service, TheService
from .openapi import describe, describe_vote
from .route import WorkRoute

work = APIRouter(route_class=WorkRoute)

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


@work.post("/score_steps", **describe("score_steps"))
async def score_steps(service: TheService, request: ScoreRequest, context: TheContext) -> ScoreResponse:
    """Scores the steps of every solution, in the order of the request."""
    return await score(service, request, context)


@work.post("/vote", **describe("vote"))
async def vote_by_default(service: TheService, request: DefaultVoteRequest, context: TheContext) -> VoteResponse:
    """Takes the server's default vote and names it in `strategy`: `wrf`, or `majority` if a demonstration model would
    have to score a problem outside its domain."""
    return await _vote(service, request, None, context)


async def _vote(service: Service, request: Candidates, strategy: Strategy | None, context: Context) -> VoteResponse:
    """The outcome of one strategy, None for the server's default; scores are computed only if it needs them."""
    why = None
    with service.models.chosen(request.model) as models:
        if strategy is None:
            why = None if request.scored else why_majority(models, request.problem)
            strategy = DEFAULT_STRATEGY if why is None else "majority"
        found = await ballot(service, models, request, [strategy], context)
        response = await service.read(
            context, partial(found.vote, strategy, request.terms, name_of(models), context.usage)
        )
    response.why_majority = why
    service.metrics.voted(response)
    return response


def _add_vote(strategy: Strategy) -> None:
    form = VOTE_REQUESTS[strategy]

    async def this_vote(service: TheService, request: form, context: TheContext) -> VoteResponse:  # type: ignore[valid-type]
        return await _vote(service, request, strategy, context)

    work.add_api_route(f"/vote/{strategy}", this_vote, methods=["POST"], **describe_vote(strategy))


for each in VOTES:
    _add_vote(each)


@work.post("/vote/compare", **describe("vote_compare"))
async def compare(service: TheService, request: CompareRequest, context: TheContext) -> CompareResponse:
    """Takes every vote over one scoring pass, each with the same result as at its own address. Votes by confidence need
    solutions with `confidence` or `token_logprobs`."""
    with service.models.chosen(request.model) as models:
        found = await ballot(service, models, request, list(VOTES), context)
        response = await service.read(context, partial(found.compare, request.terms, name_of(models), context.usage))
    for outcome in response.strategies.values():
        service.metrics.voted(outcome)
    return response


@work.post("/preview", **describe("preview"))
async def preview(service: TheService, request: PreviewRequest, context: TheContext) -> PreviewResponse:
    """Shows the exact text, token ids and scored positions of one solution, without running the model."""
    with service.models.chosen(request.model) as (model,):
        problem, solution = await service.read(context, partial(request.read, service.settings.max_steps))
        with scoring.pointing("/solution" if request.trajectory is None else "/trajectory"):
            if (error := why_unscorable(0, solution, service.settings.max_steps)) is not None:
                raise error
            with model.encoding([scoring.length(problem, solution)], context.claims.share):
                encoded = (await scoring.encode(model, problem, {0: solution}, context))[0]
            if isinstance(encoded, Unscorable):
                raise encoded
        return await asyncio.to_thread(_shown, model, solution, encoded)


def _shown(model: Model, solution: Solution, encoded: Encoded) -> PreviewResponse:
    format = model.engine.format
    return PreviewResponse(
        model=model.name,
        family=format.family,
        text=format.text(encoded),
        token_ids=list(encoded.ids),
        tokens=format.tokens(encoded),
        positions=list(encoded.positions),
        steps=list(solution.steps),
    )


async def score(service: Service, request: Candidates, context: Context) -> ScoreResponse:
    """The step scores of every solution; the request has a problem, or all scores. Raises `Unscorable` if none can be
    scored, and the errors of scoring."""
    with service.models.chosen(request.model) as models:
        if not request.scored:  # refuses before any text is read
            lengths = await service.read(context, request.lengths)
            for model in models:
                model.check_room(lengths, context.claims.share)
        with scoring.pointing(_place(request)):
            parsed = await _parse(service, request, context)
            scores = await _scores(models, request, parsed, context)
        make = partial(score_response, request, parsed.solutions, scores, name_of(models), context.usage)
        return await service.read(context, make)


def name_of(models: Sequence[Model]) -> str:
    """The name of one or several models, as in responses."""
    return "+".join(model.name for model in models)


async def ballot(
    service: Service, models: Sequence[Model], request: Candidates, strategies: Sequence[Strategy], context: Context
) -> Ballot:
    """The ballot for these votes, scored if one of them needs it.

    Raises `NoAnswer`; `Unscorable` and `NoConfidence` if no solution with an answer has a reward or confidence, and a
    vote needs one; `InvalidRequest` without a problem to score by, and for a risk that no calibration fits; and the
    errors of scoring.
    """
    risk = request.risk if isinstance(request, RiskTerms) else None
    scorer = None if request.scored else name_of(models)
    judged = acceptance(service.vote_calibration, risk, strategies, request.terms, scorer, request.aggregate)
    with scoring.pointing(_place(request)):
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
        with scoring.pointing(_place(request)):
            scores = await _scores(models, request, parsed, context, answered if scored else None)
    found = Ballot(request, solutions, classes, scores, compared_as_text, judged)
    if needed == {"confidence"} and found.confidences is None:
        raise NoConfidence
    return found


def _place(request: Candidates) -> str:
    return "/solutions/{}" if request.trajectories is None else "/trajectories/{}"


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
        scores = Scores(steps, unscorable, known, computed.intervals)
    needed = range(len(steps)) if electable is None else electable
    if not any(steps[index] for index in needed):
        raise scores.unscorable[needed[0]]
    return scores


def by_logprobs(models: Sequence[Model]) -> bool:
    """Whether any of the models scores by log-probabilities of tokens. Raises `ModelUnavailable`."""
    return any(model.engine.description.by_logprobs for model in models)


def why_majority(models: Sequence[Model], problem: str | None) -> str | None:
    """Why a vote that nobody named is by majority, None if it isn't: the rewards would be those of a demonstration
    outside its domain. Raises `ModelUnavailable`."""
    notice = demonstration(models, problem)
    if notice is None or notice.in_domain:
        return None
    return f"rewards by {name_of(models)}, a demonstration, mean nothing for this problem"


def demonstration(models: Sequence[Model], problem: str | None) -> Demonstration | None:
    """The notice about scores by these models; None if none of them is a demonstration."""
    found = next((model.name for model in models if model.engine.description.demo), None)
    return None if found is None else about(found, problem)
