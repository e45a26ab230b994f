"""From a request to a response: who is scored, what is compared, which vote is taken."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from server.ballot import Ballot, StepScores, averaged, score_response
from server.context import Context
from server.encoding import encode
from server.model import Model
from server.service import Service
from server.tracing import span, tell
from unprm import answers, votes
from unprm import steps as step_text
from unprm.engines.turns import Scored
from unprm.errors import DeadlineExceeded, NoAnswer, SolutionTooLong, TooManySteps
from unprm.types import Encoded, Solution, Strategy, Usage
from unprm.wire import (
    CompareResponse,
    PreviewRequest,
    PreviewResponse,
    ScoreRequest,
    ScoreResponse,
    VoteRequest,
    VoteResponse,
    WrfRequest,
)


async def score(service: Service, request: ScoreRequest, context: Context) -> ScoreResponse:
    """Step scores of every solution."""
    with service.models.chosen(request.model) as models:
        if not request.scored:  # what would be refused costs as little as can be
            for model in models:
                model.check_room(request.characters)
        solutions = await _solutions(service, request, context)
        scores = await _step_scores(models, request.problem, solutions, context)
        return score_response(request, solutions, scores, name(models), context.usage)


async def vote(
    service: Service, request: VoteRequest, strategy: Strategy, alpha: float, context: Context
) -> VoteResponse:
    """One strategy; scores are computed only if it needs them."""
    with service.models.chosen(request.model) as models:
        own = await ballot(service, models, request, [strategy], context)
        response = own.vote(strategy, alpha, name(models), context.usage)
    service.metrics.voted(response)
    return response


async def compare(service: Service, request: WrfRequest, context: Context) -> CompareResponse:
    """Every strategy over one scoring pass."""
    with service.models.chosen(request.model) as models:
        own = await ballot(service, models, request, votes.STRATEGIES, context)
        response = own.compare(request.alpha, name(models), context.usage)
    for outcome in response.strategies.values():
        service.metrics.voted(outcome)
    return response


async def preview(service: Service, request: PreviewRequest, context: Context) -> PreviewResponse:
    """What the model would read, without running it."""
    with service.models.chosen(request.model) as (model,):
        solution = await service.read(context, request.candidate)
        try:
            _check_steps(0, solution, service.settings.max_steps)
            encoded = _fitting((await encode(model, request.problem, {0: solution}, context))[0])
        except (SolutionTooLong, TooManySteps) as error:
            error.pointer = "/solution"
            raise
        return await asyncio.to_thread(_shown, model, solution, encoded)


async def ballot(
    service: Service,
    models: Sequence[Model],
    request: VoteRequest,
    strategies: Sequence[Strategy],
    context: Context,
) -> Ballot:
    """What these votes are taken on, scored if one of them needs it. Raises `NoAnswer` and what scoring does."""
    solutions = await _solutions(service, request, context)
    with span("answers"):
        classes, _ = await service.classes([solution.answer for solution in solutions], context.caller)
    if all(own is None for own in classes):
        raise NoAnswer(len(solutions))
    needed = any(votes.needs_rewards(strategy, classes) for strategy in strategies)
    given = all(solution.step_scores is not None for solution in solutions)
    scores = await _step_scores(models, request.problem, solutions, context) if needed or given else None
    return Ballot(request, solutions, classes, scores)


async def _solutions(service: Service, request: ScoreRequest, context: Context) -> list[Solution]:
    context.solutions = len(request.solutions)
    return await service.read(context, partial(_answered, request, service.settings.max_steps))


async def _step_scores(
    models: Sequence[Model], problem: str | None, solutions: Sequence[Solution], context: Context
) -> StepScores:
    """The scores that came with the solutions; the models are asked for the others only."""
    missing = {index: solution for index, solution in enumerate(solutions) if solution.step_scores is None}
    computed: dict[int, tuple[float, ...]] = {}
    if missing:
        assert problem is not None, "the request's validation asks for it"
        scored = await _all(_scored(model, problem, missing, context) for model in models)
        context.usage = sum((own.usage for own in scored), Usage())
        calibrations = [model.engine.description.calibration for model in models]
        computed = dict(zip(missing, averaged([own.scores for own in scored], calibrations), strict=True))
    return [solution.step_scores or computed[index] for index, solution in enumerate(solutions)]


async def _scored(model: Model, problem: str, solutions: dict[int, Solution], context: Context) -> Scored:
    characters = sum(len(problem) + sum(map(len, own.steps)) for own in solutions.values())
    with span("encode"), model.expecting(characters) as promised:
        encoded = [_fitting(own) for own in (await encode(model, problem, solutions, context)).values()]
        model.encoded(characters, sum(len(own.ids) for own in encoded))
    with span("score") as own:
        try:
            scored = await model.scorer.score(
                encoded, deadline=context.deadline, caller=context.share, promised=promised
            )
        except DeadlineExceeded:  # it knows only of the time that was left
            raise DeadlineExceeded(context.seconds) from None
        tell(own, {"model": model.name, "computed_tokens": scored.usage.computed_tokens})
        return scored


async def _all(calls: Iterable[Coroutine[Any, Any, Scored]]) -> list[Scored]:
    """Their results; if one fails the others are cancelled, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def name(models: Sequence[Model]) -> str:
    """Of one or several models, as responses tell it."""
    return "+".join(model.name for model in models)


def _answered(request: ScoreRequest, max_steps: int) -> list[Solution]:
    solutions = request.candidates()
    for index, solution in enumerate(solutions):
        _check_steps(index, solution, max_steps)
    return [replace(solution, answer=_answer(solution)) for solution in solutions]


def _check_steps(index: int, solution: Solution, most: int) -> None:
    if len(solution.steps) > most:
        raise TooManySteps(index, len(solution.steps), most)


def _answer(solution: Solution) -> str | None:
    given = solution.answer
    if given is None:
        given = answers.extract(step_text.join(solution.steps))
    return given if given is not None and given.strip() else None


def _fitting(outcome: Encoded | SolutionTooLong) -> Encoded:
    if isinstance(outcome, SolutionTooLong):
        raise outcome
    return outcome


def _shown(model: Model, solution: Solution, encoded: Encoded) -> PreviewResponse:
    engine = model.engine
    return PreviewResponse(
        model=model.name,
        family=engine.format.family,
        text=engine.format.text(encoded),
        token_ids=list(encoded.ids),
        tokens=engine.format.tokens(encoded),
        positions=list(encoded.positions),
        steps=list(solution.steps),
    )
