"""From a request to a response: what is scored, what is compared, which vote is taken."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from server.encoding import encode
from server.http.context import Context
from server.models.model import Model
from server.observe.tracing import span, tell
from server.service import Service
from unprm.answers.extraction import extract
from unprm.concurrent import all_of
from unprm.engines.queue import Permit
from unprm.engines.turns import Scored
from unprm.errors import (
    BlankSolution,
    DeadlineExceeded,
    InvalidRequest,
    NoAnswer,
    SolutionTooLong,
    TooManySteps,
    Unscorable,
)
from unprm.types import Encoded, Solution, Strategy, Usage
from unprm.votes import decide as votes
from unprm.votes.ballot import Ballot, Scores, WrfTerms, averaged, score_response
from unprm.wire import (
    Candidates,
    CompareResponse,
    PreviewRequest,
    PreviewResponse,
    ScoreRequest,
    ScoreResponse,
    VoteResponse,
    WrfRequest,
)

_NO_PROBLEM = (
    "no answer has half of all candidates for itself, so rewards decide: send the problem, or step_scores with "
    "every solution"
)


async def score(service: Service, request: ScoreRequest, context: Context) -> ScoreResponse:
    """Step scores of every solution."""
    with service.models.chosen(request.model) as models:
        if not request.scored:  # refuses before any text is read
            for model in models:
                model.check_room(request.lengths)
        candidates = await _read(service, request, context)
        scores = await _scores(models, request, candidates, context)
        return score_response(request, candidates.solutions, scores, name(models), context.usage)


async def vote(service: Service, request: Candidates, strategy: Strategy, context: Context) -> VoteResponse:
    """The outcome of one strategy; scores are computed only if it needs them."""
    terms = WrfTerms(request.alpha, request.normalization) if isinstance(request, WrfRequest) else WrfTerms()
    with service.models.chosen(request.model) as models:
        taken = await ballot(service, models, request, [strategy], context)
        response = taken.vote(strategy, terms, name(models), context.usage)
    service.metrics.voted(response)
    return response


async def compare(service: Service, request: WrfRequest, context: Context) -> CompareResponse:
    """The outcome of every strategy, over one scoring pass."""
    with service.models.chosen(request.model) as models:
        taken = await ballot(service, models, request, votes.STRATEGIES, context)
        response = taken.compare(WrfTerms(request.alpha, request.normalization), name(models), context.usage)
    for outcome in response.strategies.values():
        service.metrics.voted(outcome)
    return response


async def preview(service: Service, request: PreviewRequest, context: Context) -> PreviewResponse:
    """The exact input of the model, which is not run."""
    with service.models.chosen(request.model) as (model,):
        solution = await service.read(context, request.candidate)
        error = _unscorable(0, solution, service.settings.max_steps)
        encoded = error or (await encode(model, request.problem, {0: solution}, context))[0]
        if isinstance(encoded, Unscorable):
            encoded.pointer = "/solution"
            raise encoded
        return await asyncio.to_thread(_shown, model, solution, encoded)


async def ballot(
    service: Service,
    models: Sequence[Model],
    request: Candidates,
    strategies: Sequence[Strategy],
    context: Context,
) -> Ballot:
    """The ballot for these votes, scored if one of them needs it. Raises `NoAnswer` and the errors of scoring."""
    candidates = await _read(service, request, context)
    with span("answers"):
        answers = [solution.answer for solution in candidates.solutions]
        classes, compared_as_text = await service.classes(answers, context.share)
    if all(number is None for number in classes):
        raise NoAnswer(len(classes))
    needed = any(votes.needs_rewards(strategy, classes) for strategy in strategies)
    if needed and candidates.missing and request.problem is None:
        raise InvalidRequest(_NO_PROBLEM, "/problem")
    scores = Scores(None, candidates.unscorable)
    if needed or candidates.given:
        scores = await _scores(models, request, candidates, context)
    return Ballot(request, candidates.solutions, classes, scores, compared_as_text)


class _Read(NamedTuple):
    """A request's solutions with their answers; `unscorable`: by index, why a solution can't have a reward."""

    solutions: list[Solution]
    unscorable: dict[int, Unscorable]

    @property
    def missing(self) -> dict[int, Solution]:
        """The solutions that a model has to score, by index."""
        return {
            index: solution
            for index, solution in enumerate(self.solutions)
            if solution.step_scores is None and index not in self.unscorable
        }

    @property
    def given(self) -> bool:
        """Whether the request came with the scores of all scorable solutions."""
        return not self.missing and any(solution.step_scores for solution in self.solutions)


async def _read(service: Service, request: Candidates, context: Context) -> _Read:
    """Splits the texts and extracts their answers. Raises `Unscorable` if the request says to refuse."""
    context.solutions = len(request.solutions)
    candidates = await service.read(context, partial(_answered, request, service.settings.max_steps))
    _check_valid(request, candidates.unscorable)
    return candidates


def _check_valid(request: Candidates, unscorable: Mapping[int, Unscorable]) -> None:
    if unscorable and request.on_invalid == "refuse":
        raise unscorable[min(unscorable)]


async def _scores(models: Sequence[Model], request: Candidates, candidates: _Read, context: Context) -> Scores:
    """The scores of the solutions; the models run only for those that came without.

    Raises `Unscorable` if no candidate has scores, or if the request says to refuse."""
    scores = [solution.step_scores for solution in candidates.solutions]
    unscorable, threshold = dict(candidates.unscorable), None
    if missing := candidates.missing:
        assert request.problem is not None, "checked before"
        lengths = {index: len(request.problem) + sum(map(len, each.steps)) for index, each in missing.items()}
        with ExitStack() as room:
            permits = [room.enter_context(model.reserve(lengths.values())) for model in models]
            inputs = await all_of(_encoded(model, request.problem, missing, lengths, context) for model in models)
            for encoded in inputs:
                unscorable |= {index: error for index, error in encoded.items() if isinstance(error, Unscorable)}
            _check_valid(request, unscorable)
            if readable := [index for index in missing if index not in unscorable]:
                results = await all_of(
                    _run(model, _batch(encoded, readable), permit, context)
                    for model, encoded, permit in zip(models, inputs, permits, strict=True)
                )
                context.usage = sum((result.usage for result in results), Usage())
                described = [model.engine.description for model in models]
                means = averaged([result.scores for result in results], described)
                if len(described) == 1 and described[0].recorded is not None:
                    threshold = described[0].recorded.threshold
                for index, computed in zip(readable, means, strict=True):
                    scores[index] = computed
    if not any(scores):
        raise unscorable[min(unscorable)]
    return Scores(scores, unscorable, threshold)


async def _encoded(
    model: Model, problem: str, solutions: Mapping[int, Solution], lengths: Mapping[int, int], context: Context
) -> dict[int, Encoded | SolutionTooLong]:
    """The model input of each solution, by index; `lengths`: characters of problem plus solution."""
    with span("encode"):
        encoded = await encode(model, problem, solutions, context)
    tokens = {index: len(item.ids) for index, item in encoded.items() if isinstance(item, Encoded)}
    model.encoded(sum(lengths[index] for index in tokens), sum(tokens.values()))
    return encoded


def _batch(encoded: Mapping[int, Encoded | SolutionTooLong], indices: Iterable[int]) -> list[Encoded]:
    return [item for index in indices if isinstance(item := encoded[index], Encoded)]


async def _run(model: Model, batch: Sequence[Encoded], permit: Permit, context: Context) -> Scored:
    with span("score") as current:
        try:
            result = await model.scorer.score(batch, deadline=context.deadline, caller=context.share, permit=permit)
        except DeadlineExceeded:  # the scorer knows only the time that was left
            raise DeadlineExceeded(context.seconds) from None
        tell(current, {"model": model.name, "computed_tokens": result.usage.computed_tokens})
        return result


def name(models: Sequence[Model]) -> str:
    """The name of one or several models, as in responses."""
    return "+".join(model.name for model in models)


def _answered(request: Candidates, max_steps: int) -> _Read:
    solutions, unscorable = [], {}
    for index, (solution, text) in enumerate(zip(request.candidates(), request.texts(), strict=True)):
        scores, answer = solution.step_scores, solution.answer
        if (error := _unscorable(index, solution, max_steps)) is not None:
            unscorable[index], scores = error, None
        if answer is None:
            answer = extract(text, request.extraction)
        stated = answer is not None and answer.strip() != ""
        solutions.append(replace(solution, answer=answer if stated else None, step_scores=scores))
    return _Read(solutions, unscorable)


def _unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    """Why no model can score the solution, judged by its steps alone."""
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None


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
