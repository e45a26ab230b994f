"""The routes that score, preview and vote."""

import asyncio

from fastapi import APIRouter

from unprm.errors import Unscorable
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

from .. import scoring, voting
from ..context import Context, TheContext
from ..models.model import Model
from ..service import Service, TheService
from .openapi import describe, describe_vote
from .route import WorkRoute

work = APIRouter(route_class=WorkRoute)


@work.post("/score_steps", **describe("score_steps"))
async def score_steps(service: TheService, request: ScoreRequest, context: TheContext) -> ScoreResponse:
    """Scores the steps of every solution, in the order of the request."""
    return await voting.score_steps(service, request, context)


@work.post("/vote", **describe("vote"))
async def vote_by_default(service: TheService, request: DefaultVoteRequest, context: TheContext) -> VoteResponse:
    """Takes the server's default vote and names it in `strategy`: `wrf`, or `majority` if a demonstration model that
    nobody chose would have to score a problem outside its domain."""
    return await _vote(service, request, None, context)


async def _vote(service: Service, request: Candidates, strategy: Strategy | None, context: Context) -> VoteResponse:
    """The outcome of one strategy, None for the server's default; scores are computed only if it needs them."""
    with service.models.chosen(request.model) as models:
        if strategy is None:
            named = request.model is not None or request.scored  # the caller's own scores need no model
            strategy = voting.default_strategy(service.settings, models, request.problem, named=named)
        ballot = await voting.ballot(service, models, request, [strategy], context)
        response = ballot.vote(strategy, request.terms, voting.name(models), context.usage)
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
        ballot = await voting.ballot(service, models, request, list(VOTES), context)
        response = ballot.compare(request.terms, voting.name(models), context.usage)
    for outcome in response.strategies.values():
        service.metrics.voted(outcome)
    return response


@work.post("/preview", **describe("preview"))
async def preview(service: TheService, request: PreviewRequest, context: TheContext) -> PreviewResponse:
    """Shows the exact text, token ids and scored positions of one solution, without running the model."""
    with service.models.chosen(request.model) as (model,):
        problem, solution = await service.read(context, request.read)
        try:
            encoded = await scoring.encode_one(model, problem, solution, service.settings.max_steps, context)
        except Unscorable as error:
            error.pointer = "/solution" if request.trajectory is None else "/trajectory"
            raise
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
