"""The routes that score, preview, vote and grade: a request's work is done along `unprm.pipeline`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fastapi import APIRouter

from unprm import pipeline
from unprm.types import Encoded, Solution
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import (
    VOTE_REQUESTS,
    Candidates,
    CompareRequest,
    CompareResponse,
    DefaultVoteRequest,
    GradeRequest,
    GradeResponse,
    PreviewRequest,
    PreviewResponse,
    ScoreRequest,
    ScoreResponse,
    VoteResponse,
)

from ..lease import Lease, TheLease
from ..models.model import Model
from ..scoring import RequestScorer
from ..service import Service, TheService
from .openapi import describe, describe_vote
from .route import WorkRoute

work = APIRouter(route_class=WorkRoute)


@work.post("/score_steps", **describe("score_steps"))
async def score_steps(service: TheService, request: ScoreRequest, lease: TheLease) -> ScoreResponse:
    """Scores the steps of every solution, in the order of the request."""
    with _scorer(service, request, lease) as scorer:
        if not request.has_all_scores:  # a refusal before any text is read saves most of its work
            lengths = await lease.read(request.lengths)
            for model in scorer.models:
                with model.reserve(lengths, lease.share), model.encoding(lengths, lease.share):
                    pass
        return await scorer.finish(pipeline.score(request, scorer))


@work.post("/vote", **describe("vote"))
async def vote_by_default(service: TheService, request: DefaultVoteRequest, lease: TheLease) -> VoteResponse:
    """Takes the server's default vote and names it in `strategy`: `wrf`, or `majority` if a demonstration model would
    have to score a problem outside its domain."""
    return await _vote(service, request, None, lease)


async def _vote(service: Service, request: Candidates, strategy: Strategy | None, lease: Lease) -> VoteResponse:
    with _scorer(service, request, lease) as scorer:
        response = await scorer.finish(pipeline.vote(request, strategy, scorer))
    service.metrics.count_vote(response, lease)
    return response


def _add_vote(strategy: Strategy) -> None:
    form = VOTE_REQUESTS[strategy]

    async def this_vote(service: TheService, request: form, lease: TheLease) -> VoteResponse:  # type: ignore[valid-type]
        return await _vote(service, request, strategy, lease)

    work.add_api_route(f"/vote/{strategy}", this_vote, methods=["POST"], **describe_vote(strategy))


for each in VOTES:
    _add_vote(each)


@work.post("/vote/compare", **describe("vote_compare"))
async def compare(service: TheService, request: CompareRequest, lease: TheLease) -> CompareResponse:
    """Takes every vote over one scoring pass, each with the same result as at its own endpoint. Votes by confidence
    need solutions with `confidence` or `token_logprobs`."""
    with _scorer(service, request, lease) as scorer:
        response = await scorer.finish(pipeline.compare(request, scorer))
    for outcome in response.strategies.values():
        service.metrics.count_vote(outcome, lease)
    return response


@work.post("/grade", **describe("grade"))
async def grade(service: TheService, request: GradeRequest, lease: TheLease) -> GradeResponse:
    """Grades answers by the right ones, each pair by itself; no model is needed. What a pair may cost is bounded,
    whatever it says."""
    grades = await RequestScorer(service, (), lease).finish(pipeline.grade(request.pairs, request.extraction))
    return GradeResponse(grades=grades)


@work.post("/preview", **describe("preview"))
async def preview(service: TheService, request: PreviewRequest, lease: TheLease) -> PreviewResponse:
    """Shows the exact text, token ids and scored positions of one solution, without running the model."""
    with service.models.chosen(request.model) as (model,):
        scorer = RequestScorer(service, [model], lease)
        solution = await lease.read(partial(request.read, service.settings.max_steps, scorer.tags))
        place = "/solution" if request.trajectory is None else "/trajectory"
        pipeline.raise_first_unscorable([pipeline.why_unscorable(0, solution, service.settings.max_steps)], place)
        encoded = (await scorer.encode(model, {0: solution}))[0]
        pipeline.raise_first_unscorable([encoded], place)
        assert isinstance(encoded, Encoded)
        return await lease.read(partial(_shown, model, solution, encoded))


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


@contextmanager
def _scorer(service: Service, request: Candidates, lease: Lease) -> Iterator[RequestScorer]:
    """Scores by the models that the request names."""
    lease.solutions = request.count
    with service.models.chosen(request.model, least=0) as models:
        yield RequestScorer(service, models, lease)
