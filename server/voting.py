"""The routes that read, score and vote, and their work: parse, compare answers, score, decide, respond."""

import asyncio
from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter

from unprm.election.ballot import Ballot, Scores, score_response
from unprm.election.decide import needed_signal
from unprm.election.parsing import ParsedCandidates, parse, why_unscorable
from unprm.errors import InvalidRequest, NoAnswer, Unscorable
from unprm.types import Encoded, Solution
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import (
    VOTE_REQUESTS,
    Candidates,
    CompareRequest,
    CompareResponse,
    DefaultVoteRequest,
    PreviewRequest,
    PreviewResponse,
    ScoreRequest,
    ScoreResponse,
    VoteResponse,
)

from . import scoring
from .demonstration import default_strategy, demonstration
from .http.context import Context, TheContext
from .http.openapi import describe, describe_vote
from .http.work import WorkRoute
from .models.model import Model
from .observe.tracing import span
from .service import Service, TheService

work = APIRouter(route_class=WorkRoute)
_NO_PROBLEM = (
    "no answer has half of all candidates for itself, so rewards decide: send the problem, or step_scores with "
    "every solution"
)


class NoConfidence(InvalidRequest):
    """A vote by confidence among solutions of which none that has an answer brings a confidence."""

    def __init__(self) -> None:
        super().__init__(
            "confidences decide this vote, and no solution with an answer brings one: send `confidence` or "
            "`token_logprobs`",
            "/solutions",
        )


@work.post("/score_steps", **describe("score_steps"))
async def score_steps(service: TheService, request: ScoreRequest, context: TheContext) -> ScoreResponse:
    """Scores the steps of every solution, in the order of the request."""
    with service.models.chosen(request.model) as models:
        if not request.scored:  # refuses before any text is read
            for model in models:
                model.check_room(request.lengths, context.share)
        parsed = await _parse(service, request, context)
        scores = await _scores(models, request, parsed, context)
        return score_response(request, parsed.solutions, scores, name(models), context.usage)


@work.post("/vote", **describe("vote"))
async def vote_by_default(service: TheService, request: DefaultVoteRequest, context: TheContext) -> VoteResponse:
    """Takes the server's default vote, and says in `strategy` which that was: `wrf`; but `majority` where a
    demonstration that nobody asked for by name would have to score solutions of a problem outside its domain."""
    return await vote(service, request, None, context)


async def vote(service: Service, request: Candidates, strategy: Strategy | None, context: Context) -> VoteResponse:
    """The outcome of one strategy, None for the server's default; scores are computed only if it needs them."""
    with service.models.chosen(request.model) as models:
        if strategy is None:
            named = request.model is not None or request.scored  # the caller's own scores need no model
            strategy = default_strategy(service.settings, models, request.problem, named=named)
        taken = await ballot(service, models, request, [strategy], context)
        response = taken.vote(strategy, request.terms, name(models), context.usage)
    service.metrics.voted(response)
    return response


def _add_vote(strategy: Strategy) -> None:
    form = VOTE_REQUESTS[strategy]

    async def this_vote(service: TheService, request: form, context: TheContext) -> VoteResponse:  # type: ignore[valid-type]
        return await vote(service, request, strategy, context)

    work.add_api_route(f"/vote/{strategy}", this_vote, methods=["POST"], **describe_vote(strategy))


for each in VOTES:
    _add_vote(each)


@work.post("/vote/compare", **describe("vote_compare"))
async def compare(service: TheService, request: CompareRequest, context: TheContext) -> CompareResponse:
    """Takes every vote over one scoring pass; each has the same result as at its own address. Votes by confidence are
    left out unless a solution brings what they need."""
    with service.models.chosen(request.model) as models:
        taken = await ballot(service, models, request, list(VOTES), context)
        response = taken.compare(request.terms, name(models), context.usage)
    for outcome in response.strategies.values():
        service.metrics.voted(outcome)
    return response


@work.post("/preview", **describe("preview"))
async def preview(service: TheService, request: PreviewRequest, context: TheContext) -> PreviewResponse:
    """Shows the exact text, token ids and scored positions of one solution, without running the model."""
    with service.models.chosen(request.model) as (model,):
        solution = await service.read(context, request.candidate)
        error = why_unscorable(0, solution, service.settings.max_steps)
        encoded = error or (await scoring.encode(model, request.problem, {0: solution}, context))[0]
        if isinstance(encoded, Unscorable):
            encoded.pointer = "/solution"
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
    vote needs one; `InvalidRequest` without a problem to score by; and the errors of scoring.
    """
    parsed = await _parse(service, request, context)
    with span("answers"):
        classes, compared_as_text = await service.classes([each.answer for each in parsed.solutions], context)
    if all(number is None for number in classes):
        raise NoAnswer(len(classes))
    needed = {needed_signal(strategy, classes, request.terms) for strategy in strategies}
    scored = "reward" in needed
    if scored and parsed.missing and request.problem is None:
        raise InvalidRequest(_NO_PROBLEM, "/problem")
    scores = Scores(None, parsed.unscorable)
    if scored or parsed.given:
        answered = [index for index, number in enumerate(classes) if number is not None]
        scores = await _scores(models, request, parsed, context, answered if scored else None)
    found = Ballot(request, parsed.solutions, classes, scores, compared_as_text)
    if needed == {"confidence"} and found.confidences is None:
        raise NoConfidence
    return found


async def _parse(service: Service, request: Candidates, context: Context) -> ParsedCandidates:
    """Splits the texts and extracts their answers. Raises `Unscorable` if the request says to refuse."""
    context.solutions = len(request.solutions)
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
    unscorable, threshold, known = dict(parsed.unscorable), None, None
    if missing := parsed.missing:
        assert request.problem is not None, "checked before"
        computed = await scoring.score(models, request.problem, missing, request.on_invalid == "refuse", context)
        unscorable, threshold = {**unscorable, **computed.unscorable}, computed.threshold
        for index, scores in computed.steps.items():
            steps[index] = scores
        known = demonstration(models, request.problem) if computed.steps else None
    needed = range(len(steps)) if electable is None else electable
    if not any(steps[index] for index in needed):
        raise unscorable[needed[0]]
    return Scores(steps, unscorable, threshold, known)
