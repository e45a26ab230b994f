"""Does a request's work on the server: texts are read by turns, answers compared in slices, solutions encoded by turns,
then run in batches with those of other requests."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

from unprm.answers.equivalence import Begun, Comparison, Match, Pair, is_integer, texts
from unprm.election.acceptance import OnElection, on_election
from unprm.engines.batch import ScoredItems
from unprm.errors import DeadlineExceeded, SolutionTooLong, Unscorable
from unprm.scorer import Compare, MatchPairs, Outcome, Score, Scorer, Work, averaged, outcomes
from unprm.scorer import encode as encoded
from unprm.task_groups import all_of
from unprm.types import Encoded, Solution, Usage
from unprm.votes.registry import Strategy
from unprm.wire import Candidates

from .admission import Context
from .models.model import Model, Room
from .service import Service
from .tracing import annotate, span

T = TypeVar("T")

_SLICE = 0.02
"""Seconds of processor time for which a request's answers are compared before it is the next caller's turn."""

Inputs = dict[int, Encoded | Unscorable]
"""By the index of a solution: the model input, or why there is none."""


class RequestScorer(Scorer):
    """Does the work of one request with these models: in its turns, in its caller's share of every room, and until its
    deadline. Tokens and times are added to the request's usage."""

    def __init__(self, service: Service, models: Sequence[Model], context: Context) -> None:
        self._service, self.models, self._context = service, models, context
        self.name = "+".join(model.name for model in models)
        self.max_steps = service.settings.max_steps

    @property
    def demo(self) -> str | None:
        """The name of the first of the models that is a demonstration. Raises `ModelUnavailable`."""
        return next((model.name for model in self.models if model.engine.description.demo), None)

    def on_election(self, request: Candidates, strategies: Sequence[Strategy]) -> OnElection | None:
        """The election is judged by the server's calibration, and kept for its journal if it is the request's only
        one."""
        kept = self._service.journal is not None and len(strategies) == 1
        note = partial(setattr, self._context, "election") if kept else None
        return on_election(self._service.vote_calibration, request, strategies, self.name, note)

    @property
    def usage(self) -> Usage:  # type: ignore[override]
        return self._context.usage

    async def read(self, function: Callable[[], T]) -> T:
        return await self._service.read(self._context, function)

    async def finish(self, work: Work[T]) -> T:
        """The result of the work, each part of which runs in a turn of its caller."""
        reply: Any = None
        while True:
            asked = await self.read(partial(_next, work, reply))
            if isinstance(asked, _Result):
                result: T = asked.value
                return result
            match asked:
                case Compare(answers):
                    reply = await self.compare(answers)
                case MatchPairs(pairs):
                    reply = await self.match(pairs)
                case Score(solutions, strict):
                    reply = await self.score(solutions, strict)

    async def compare(self, answers: Sequence[str]) -> Comparison:
        with span("answers"):
            begun = await self._keys(answers)
            return await self.read(partial(self._service.equivalence.finish, begun))

    async def match(self, pairs: Sequence[Pair]) -> list[Match]:
        with span("answers"):
            begun = await self._keys(texts(pairs))
            return await self.read(partial(self._service.equivalence.matched, begun, pairs))

    async def _keys(self, answers: Sequence[str]) -> Begun:
        equivalence, readers = self._service.equivalence, self._service.readers

        def begin() -> Begun:
            begun = equivalence.begin(answers, self._context.scope)
            if all(map(is_integer, begun.wanted)):  # at once: handing them to a thread would take longer
                equivalence.advance(begun, math.inf)
            return begun

        begun = await self.read(begin)
        while begun.wanted:  # in slices, so that nobody waits for all of another's answers
            slice = partial(equivalence.advance, begun, _SLICE)
            await readers.run(self._context.claims, len(begun.wanted[-1]), slice)
        return begun

    async def score(self, solutions: Mapping[int, Solution], strict: bool) -> Mapping[int, Outcome]:
        """The outcome of each solution; for several models the mean of their scores. `strict`: nothing is run if a
        solution is too long for a model, or lacks what a model scores by.

        Raises `Overloaded`, `ModelUnavailable` and `DeadlineExceeded`.
        """
        models, claims = self.models, self._context.claims
        lengths = [length(solution) for solution in solutions.values()]
        with ExitStack() as stack:  # room in every model, or in none
            rooms = [stack.enter_context(model.reserve(lengths, claims.share)) for model in models]
            inputs = await all_of(
                self._encode(model, solutions, room) for model, room in zip(models, rooms, strict=True)
            )
            unreadable = {
                index: item for each in inputs for index, item in each.items() if isinstance(item, Unscorable)
            }
            readable = [index for index in solutions if index not in unreadable]
            if not readable or (strict and unreadable):
                return dict(sorted(unreadable.items()))
            batches = [[item for index in readable if isinstance(item := each[index], Encoded)] for each in inputs]
            tokens = sum(len(item.ids) for batch in batches for item in batch)
            claims.charge(tokens)
            results = await all_of(
                self._run(model, batch, room) for model, batch, room in zip(models, batches, rooms, strict=True)
            )
        usage = sum((result.usage for result in results), Usage())
        self._context.usage += usage
        claims.charge(usage.tokens - tokens)  # a judge's server counts its own
        scores = results[0].scores
        if len(models) > 1:
            scores = averaged([each.scores for each in results], [model.engine.description for model in models])
        return outcomes(inputs[0] | unreadable, dict(zip(readable, scores, strict=True)))

    async def _encode(self, model: Model, solutions: Mapping[int, Solution], room: Room) -> Inputs:
        """As `encode`; the model learns how many tokens the characters became, and how long that took is added to the
        usage."""
        begun = model.clock()
        with span("encode"):
            inputs = await encode(model, solutions, self._context)
        room.texts.set(0)
        self._context.usage += Usage(tokenization_ms=1000 * (model.clock() - begun))
        tokens = {index: len(item.ids) for index, item in inputs.items() if isinstance(item, Encoded)}
        model.encoded(sum(length(solutions[index]) for index in tokens), sum(tokens.values()))
        return inputs

    async def _run(self, model: Model, batch: Sequence[Encoded], room: Room) -> ScoredItems:
        claims = self._context.claims
        with span("score"):
            try:
                result = await model.queue.score(
                    batch,
                    deadline=claims.deadline,
                    caller=claims.share,
                    reservation=room.permit,
                )
            except DeadlineExceeded:  # the scorer knows only the time that was left
                raise DeadlineExceeded(claims.seconds) from None
            self._service.metrics.count_usage(model.name, result.usage)
            annotate({"model": model.name, "computed_tokens": result.usage.computed_tokens})
            return result


class _Result(NamedTuple):
    """Of work that ended. (No future can hold a `StopIteration`.)"""

    value: Any


def _next(work: Work[T], reply: Any) -> Compare | MatchPairs | Score | _Result:
    """The next question of the work, or its result."""
    try:
        return work.send(reply)
    except StopIteration as end:
        return _Result(end.value)


async def encode(model: Model, solutions: Mapping[int, Solution], context: Context) -> Inputs:
    """The model input of each solution, by its index in the request; the error for one beyond the model's window.

    A solution with more characters than the window's tokens can hold is not encoded at all. The others are, in
    turns with other requests; a cancelled request gets no further turn. Raises `ModelUnavailable`.
    """
    engine, limit = model.engine, model.engine.description.max_tokens
    inputs: Inputs = {}
    left: dict[int, Solution] = {}
    for index, solution in solutions.items():
        minimum = -(-length(solution) // engine.format.longest_token)
        if minimum > limit:
            inputs[index] = SolutionTooLong(index, minimum, limit, exact=False)
        else:
            left[index] = solution
    run = partial(model.encoders.run, context.claims)
    shared = Counter(solution.problem for solution in left.values())
    for problem, count in shared.items():
        if count > 1 and len(problem) > limit:  # alone it may be too long, and be encoded in vain for every solution
            minimum = len((await run(len(problem), partial(engine.format.encode, problem, ("1",)))).ids)
            if minimum > limit:
                for index in [index for index, solution in left.items() if solution.problem == problem]:
                    inputs[index] = SolutionTooLong(index, minimum, limit, exact=False)
                    del left[index]
    for size, piece in _pieces(left, model.PIECE):
        inputs |= await run(size, partial(encoded, engine, piece, context.scope))
    return {index: inputs[index] for index in solutions}


def length(solution: Solution) -> int:
    """Characters of problem plus solution; or those of a prompt, or its token ids."""
    return sum(map(len, (solution.problem, *solution.steps, solution.prompt.content if solution.prompt else "")))


def _pieces(solutions: Mapping[int, Solution], minimum: int) -> Iterator[tuple[int, dict[int, Solution]]]:
    """The solutions in parts of at least `minimum` characters, one for each turn, and the characters of each part."""
    size, piece = 0, dict[int, Solution]()
    for index, solution in solutions.items():
        piece[index] = solution
        size += length(solution)
        if size >= minimum:
            yield size, piece
            size, piece = 0, {}
    if piece:
        yield size, piece
