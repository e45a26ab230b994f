"""Scores solutions by models: their texts are encoded by turns, then run in batches with those of other requests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from unprm.concurrent import all_of
from unprm.election.ballot import averaged
from unprm.engines.waiting import Scored
from unprm.errors import DeadlineExceeded, NoLogProbs, NoVerdict, SolutionTooLong, Unscorable
from unprm.types import Encoded, Engine, Interval, Solution, Usage

from .admission import Context
from .models.model import Model, Room
from .observe import set_attributes, span

Outcomes = dict[int, Encoded | Unscorable]
"""By the index of a solution: the model input, or why there is none."""


class Computed(NamedTuple):
    """Step scores by the index of a solution; `unscorable`: by index, why a solution has none; `intervals`: by
    index, those of the scores of a single model that tells them."""

    steps: Mapping[int, tuple[float, ...]]
    unscorable: Mapping[int, Unscorable]
    intervals: Mapping[int, tuple[Interval, ...]]


async def score(
    models: Sequence[Model], problem: str, solutions: Mapping[int, Solution], strict: bool, context: Context
) -> Computed:
    """Step scores of the solutions, given by their indices in the request; for several models the mean. Adds tokens and
    times to the request's usage.

    `strict`: raises `SolutionTooLong` if a solution is too long for a model, or `NoLogProbs` if it lacks what a model
    scores by, and runs nothing, and `NoVerdict` if a judge gives none on a step. Raises `Overloaded`,
    `ModelUnavailable` and `DeadlineExceeded`.
    """
    described = [model.engine.description for model in models]
    lengths = [length(problem, solution) for solution in solutions.values()]
    with ExitStack() as stack:  # room in every model, or in none
        rooms = [stack.enter_context(model.reserve(lengths, context.claims.share)) for model in models]
        outcomes = await all_of(
            _encode(model, problem, solutions, room, context) for model, room in zip(models, rooms, strict=True)
        )
        unreadable = {
            index: outcome
            for encoded in outcomes
            for index, outcome in encoded.items()
            if isinstance(outcome, Unscorable)
        }
        readable = [index for index in solutions if index not in unreadable]
        if strict and unreadable:
            raise unreadable[min(unreadable)]
        if not readable:
            return Computed({}, unreadable, {})
        batches = [[item for index in readable if isinstance(item := each[index], Encoded)] for each in outcomes]
        tokens = sum(len(item.ids) for batch in batches for item in batch)
        context.claims.charge(tokens)
        results = await all_of(
            _run(model, batch, room, context) for model, batch, room in zip(models, batches, rooms, strict=True)
        )
    usage = sum((result.usage for result in results), Usage())
    context.usage += usage
    context.claims.charge(usage.tokens - tokens)  # a judge's server counts its own
    unread = {
        readable[place]: NoVerdict(readable[place], count, len(result.scores[place]))
        for result in results
        for place, count in result.unread.items()
    }
    if strict and unread:
        raise unread[min(unread)]
    steps = averaged([result.scores for result in results], described)
    scored = {index: each for index, each in zip(readable, steps, strict=True) if index not in unread}
    intervals = results[0].intervals if len(results) == 1 else {}
    return Computed(scored, {**unreadable, **unread}, {readable[place]: each for place, each in intervals.items()})


async def encode(model: Model, problem: str, solutions: Mapping[int, Solution], context: Context) -> Outcomes:
    """The model input of each solution, by its index in the request; the error for one beyond the model's window, or
    without the log-probabilities that the model scores by.

    A solution with more characters than the window's tokens can hold is not encoded at all. The others are, in
    turns with other requests; a cancelled request gets no further turn. Raises `ModelUnavailable`.
    """
    engine, limit = model.engine, model.engine.description.max_tokens
    outcomes: Outcomes = {}
    left: dict[int, Solution] = {}
    for index, solution in solutions.items():
        minimum = -(-length(problem, solution) // engine.format.longest_token)
        if minimum > limit:
            outcomes[index] = SolutionTooLong(index, minimum, limit, exact=False)
        else:
            left[index] = solution
    run = partial(model.encoders.run, context.claims)
    minimum = 0
    if len(left) > 1 and len(problem) > limit:  # alone it may be too long, and be encoded in vain for every solution
        minimum = len((await run(len(problem), partial(engine.format.encode, problem, ("1",)))).ids)
    if minimum > limit:
        outcomes |= {index: SolutionTooLong(index, minimum, limit, exact=False) for index in left}
    else:
        for size, piece in _pieces(problem, left, model.PIECE):
            outcomes |= await run(size, partial(_encoded, engine, problem, piece, context.scope))
    return {index: outcomes[index] for index in solutions}


@contextmanager
def pointing(place: str) -> Iterator[None]:
    """Errors about a solution point to where it was sent, {} being its index."""
    try:
        yield
    except Unscorable as error:
        error.pointer = place.format(error.index)
        raise


def length(problem: str, solution: Solution) -> int:
    """Characters of problem plus solution; or those of a prompt, or its token ids."""
    return len(problem) + sum(map(len, solution.steps)) + len(solution.prompt.content if solution.prompt else "")


def _pieces(problem: str, solutions: Mapping[int, Solution], minimum: int) -> Iterator[tuple[int, dict[int, Solution]]]:
    """The solutions in parts of at least `minimum` characters, one for each turn, and the characters of each part."""
    size, piece = 0, dict[int, Solution]()
    for index, solution in solutions.items():
        piece[index] = solution
        size += length(problem, solution)
        if size >= minimum:
            yield size, piece
            size, piece = 0, {}
    if piece:
        yield size, piece


def _encoded(engine: Engine, problem: str, solutions: Mapping[int, Solution], scope: str) -> Outcomes:
    limit = engine.description.max_tokens
    outcomes: Outcomes = {}
    for index, solution in solutions.items():
        if solution.prompt is not None:
            item = engine.format.at_tags(engine.format.tokenize(solution.prompt))
        else:
            item = engine.format.encode(problem, solution.steps)
        if engine.description.by_logprobs:
            if solution.logprobs is None or not all(solution.logprobs):
                outcomes[index] = NoLogProbs(index)
                continue
            item = replace(item, logprobs=solution.logprobs)
        too_long = SolutionTooLong(index, len(item.ids), limit) if len(item.ids) > limit else None
        outcomes[index] = too_long or replace(item, scope=scope, evidence=solution.evidence)
    return outcomes


async def _encode(
    model: Model, problem: str, solutions: Mapping[int, Solution], room: Room, context: Context
) -> Outcomes:
    """As `encode`; the model learns how many tokens the characters became, and how long that took is added to the
    usage."""
    begun = model.clock()
    with span("encode"):
        outcomes = await encode(model, problem, solutions, context)
    room.texts.set(0)
    context.usage += Usage(tokenization_ms=1000 * (model.clock() - begun))
    tokens = {index: len(item.ids) for index, item in outcomes.items() if isinstance(item, Encoded)}
    model.encoded(sum(length(problem, solutions[index]) for index in tokens), sum(tokens.values()))
    return outcomes


async def _run(model: Model, batch: Sequence[Encoded], room: Room, context: Context) -> Scored:
    claims = context.claims
    with span("score") as current:
        try:
            result = await model.scorer.score(batch, deadline=claims.deadline, caller=claims.share, permit=room.permit)
        except DeadlineExceeded:  # the scorer knows only the time that was left
            raise DeadlineExceeded(claims.seconds) from None
        model.used(result.usage)
        set_attributes(current, {"model": model.name, "computed_tokens": result.usage.computed_tokens})
        return result
