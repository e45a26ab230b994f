"""Scores solutions by models: their texts are encoded by turns, then run in batches with those of other requests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from unprm.concurrent import all_of
from unprm.engines.scheduler import Permit
from unprm.engines.waiting import Scored
from unprm.errors import DeadlineExceeded, NoVerdict, SolutionTooLong, Unscorable
from unprm.types import Encoded, Engine, Solution, Usage
from unprm.votes.ballot import averaged

from .http.context import Context
from .models.model import Model
from .observe.tracing import span, tell
from .sharing import Turns

_PIECE = 65_536
"""Characters that are encoded in a turn; a longer solution gets a turn of its own."""

Outcomes = dict[int, Encoded | SolutionTooLong]
"""By the index of a solution: the model input, or why there is none."""
Value = TypeVar("Value")


class Computed(NamedTuple):
    """Step scores by the index of a solution; `unscorable`: by index, why a solution has none; `threshold`: the
    recorded one of a single model, if it has one."""

    steps: Mapping[int, tuple[float, ...]]
    unscorable: Mapping[int, Unscorable]
    threshold: float | None


async def score(
    models: Sequence[Model], problem: str, solutions: Mapping[int, Solution], strict: bool, context: Context
) -> Computed:
    """Step scores of the solutions, given by their indices in the request; for several models the mean. Adds up the
    tokens in the request's context.

    `strict`: raises `SolutionTooLong` if a solution is too long for a model, and runs nothing, and `NoVerdict` if a
    judge gives none on a step. Raises `Overloaded`, `ModelUnavailable` and `DeadlineExceeded`.
    """
    described = [model.engine.description for model in models]
    recorded = described[0].recorded if len(models) == 1 else None
    threshold = None if recorded is None else recorded.threshold
    with ExitStack() as room:
        lengths = [_length(problem, solution) for solution in solutions.values()]
        permits = [room.enter_context(model.reserve(lengths, context.share)) for model in models]
        outcomes = await all_of(_encode_measured(model, problem, solutions, context) for model in models)
        too_long = {
            index: outcome
            for encoded in outcomes
            for index, outcome in encoded.items()
            if isinstance(outcome, SolutionTooLong)
        }
        readable = [index for index in solutions if index not in too_long]
        if strict and too_long:
            raise too_long[min(too_long)]
        if not readable:
            return Computed({}, too_long, threshold)
        batches = [[item for index in readable if isinstance(item := each[index], Encoded)] for each in outcomes]
        tokens = sum(len(item.ids) for batch in batches for item in batch)
        context.charge(tokens)
        results = await all_of(
            _run(model, batch, permit, context) for model, batch, permit in zip(models, batches, permits, strict=True)
        )
    context.usage = sum((result.usage for result in results), Usage())
    context.charge(context.usage.tokens - tokens)  # a judge's server counts its own
    unread = {
        readable[place]: NoVerdict(readable[place], count, len(result.scores[place]))
        for result in results
        for place, count in result.unread.items()
    }
    if strict and unread:
        raise unread[min(unread)]
    steps = averaged([result.scores for result in results], described)
    scored = {index: each for index, each in zip(readable, steps, strict=True) if index not in unread}
    return Computed(scored, {**too_long, **unread}, threshold)


async def encode(model: Model, problem: str, solutions: Mapping[int, Solution], context: Context) -> Outcomes:
    """The model input of each solution, by its index in the request; the error for one beyond the model's window.

    A solution with more characters than the window's tokens can stand for is not encoded at all. The others are, in
    turns with other requests; a cancelled request gets no further turn. Raises `Overloaded` if too much of this caller
    is being encoded, and `ModelUnavailable`.
    """
    engine, limit = model.engine, model.engine.description.max_tokens
    outcomes: Outcomes = {}
    left: dict[int, Solution] = {}
    for index, solution in solutions.items():
        fewest = -(-_length(problem, solution) // engine.format.longest_token)
        if fewest > limit:
            outcomes[index] = SolutionTooLong(index, fewest, limit, exact=False)
        else:
            left[index] = solution
    characters = sum(_length(problem, solution) for solution in left.values())
    # what takes a single turn is always accepted: a caller's long texts must not keep out its short ones
    with model.encoding(context.share, characters if characters > _PIECE else 0) as turns:
        fewest = await _fewest(engine, problem, turns) if len(left) > 1 else 0
        if fewest > limit:
            outcomes |= {index: SolutionTooLong(index, fewest, limit, exact=False) for index in left}
        else:
            for size, piece in _pieces(problem, left):
                outcomes |= await turns.run(size, partial(_encoded, engine, problem, piece, context.scope))
    return {index: outcomes[index] for index in solutions}


def _length(problem: str, solution: Solution) -> int:
    """Characters of problem plus solution."""
    return len(problem) + sum(map(len, solution.steps))


async def _fewest(engine: Engine, problem: str, turns: Turns) -> int:
    """Lower bound on the tokens of any solution with this problem. Measured only if the problem alone may be too long,
    since it would then be encoded in vain for every solution; else 0."""
    if len(problem) <= engine.description.max_tokens:
        return 0
    return len((await turns.run(len(problem), partial(engine.format.encode, problem, ("1",)))).ids)


def _pieces(problem: str, solutions: Mapping[int, Solution]) -> Iterator[tuple[int, dict[int, Solution]]]:
    """The solutions in parts, one for each turn, and the characters of each part."""
    size, piece = 0, dict[int, Solution]()
    for index, solution in solutions.items():
        piece[index] = solution
        size += _length(problem, solution)
        if size >= _PIECE:
            yield size, piece
            size, piece = 0, {}
    if piece:
        yield size, piece


def _encoded(engine: Engine, problem: str, solutions: Mapping[int, Solution], scope: str) -> Outcomes:
    limit = engine.description.max_tokens
    encoded = {index: engine.format.encode(problem, solution.steps) for index, solution in solutions.items()}
    return {
        index: replace(item, scope=scope)
        if (tokens := len(item.ids)) <= limit
        else SolutionTooLong(index, tokens, limit)
        for index, item in encoded.items()
    }


async def _encode_measured(model: Model, problem: str, solutions: Mapping[int, Solution], context: Context) -> Outcomes:
    """As `encode`; the model learns how many tokens the characters became."""
    with span("encode"):
        outcomes = await encode(model, problem, solutions, context)
    tokens = {index: len(item.ids) for index, item in outcomes.items() if isinstance(item, Encoded)}
    model.encoded(sum(_length(problem, solutions[index]) for index in tokens), sum(tokens.values()))
    return outcomes


async def _run(model: Model, batch: Sequence[Encoded], permit: Permit, context: Context) -> Scored:
    with span("score") as current:
        try:
            result = await model.scorer.score(batch, deadline=context.deadline, caller=context.share, permit=permit)
        except DeadlineExceeded:  # the scorer knows only the time that was left
            raise DeadlineExceeded(context.seconds) from None
        model.used(result.usage)
        tell(current, {"model": model.name, "computed_tokens": result.usage.computed_tokens})
        return result
