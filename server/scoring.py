"""Does a request's work on the server: texts are read by turns, answers compared in slices, solutions encoded by turns,
then run in batches with those of other requests."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from unprm.answers.equivalence import Begun, is_integer, texts
from unprm.election.selection import Question, Selected
from unprm.engines.model_queue import ScoredItems
from unprm.errors import (
    DeadlineExceeded,
    ModelInvalid,
    ModelUnavailable,
    Overloaded,
    Unscorable,
    UpstreamFailed,
)
from unprm.fair_shares import Reservation
from unprm.pipeline import (
    Compare,
    MatchPairs,
    Outcome,
    Score,
    Scorer,
    Select,
    Work,
    averaged,
    encode,
    outcomes,
    solution_length,
)
from unprm.task_groups import all_of
from unprm.types import Encoded, Solution, Usage

from .lease import SMALL, Lease
from .models.model import Model
from .service import Service
from .settings import CHECKS
from .tracing import annotate, span

T = TypeVar("T")

_SLICE = 0.02
"""Seconds of processor time for which a request's texts are read, or its answers compared, before it is the next
caller's turn."""

_SELECTING = 0.9
"""The share of the time that is left which a comparison may take: then the majority decides."""

_NO_COMPARISON = (ModelInvalid, ModelUnavailable, Overloaded, UpstreamFailed)
"""Errors of a model that can't be asked: the majority decides instead."""

Compares = Callable[[Question], Coroutine[Any, Any, Selected]]
"""Asks a model which of a question's texts it prefers."""

_ENCODING = 16
"""The fraction of a turn's characters up to which solutions are encoded at once, which takes a millisecond."""


class RequestScorer(Scorer):
    """Does the work of one request with these models: in its turns, in its caller's share of every room, and until its
    deadline. Tokens and times are added to the request's usage."""

    def __init__(self, service: Service, models: Sequence[Model], lease: Lease) -> None:
        super().__init__({model.name: model.engine for model in models if model.is_ready})
        self._service, self.models, self.lease = service, models, lease
        self.checks = not models and service.settings.model == [CHECKS]
        self.name = CHECKS if self.checks else "+".join(model.name for model in models)
        self.max_steps, self.calibration = service.settings.max_steps, service.vote_calibration
        self.compares: Compares | None = None if service.selector is None else self._ask_judge
        self.note = None if service.journal is None else partial(setattr, lease, "election")

    @property
    def selects(self) -> bool:  # type: ignore[override]
        return self.compares is not None

    @property
    def usage(self) -> Usage:  # type: ignore[override]
        return self.lease.usage

    async def finish(self, work: Work[T], size: int | None = None) -> T:
        """The result of the work on texts of that size, by default all, each part of which runs in a turn of its
        caller."""
        equivalence, results = self._service.equivalence, list[T]()
        reply: Any = None
        paused = False

        def advance() -> Compare | MatchPairs | Score | Select | None:
            """The next question; None if the turn ends before, or the work, which no future could tell as a
            `StopIteration`."""
            begun, answer = time.thread_time(), reply
            try:
                while (asked := work.send(answer)) is None and time.thread_time() - begun < _SLICE:
                    answer = None
                return asked
            except StopIteration as end:
                results.append(end.value)
                return None

        while not results:
            asked = await (self.lease.read(advance, SMALL, small=-1) if paused else self.lease.read(advance, size))
            reply, paused = None, asked is None
            match asked:
                case Compare(answers):
                    keys = await self._keys(answers)
                    reply = await self.lease.read(partial(equivalence.finish, keys))
                case MatchPairs(pairs):
                    keys = await self._keys(texts(pairs))
                    reply = await self.lease.read(partial(equivalence.matched, keys, pairs))
                case Score(solutions, strict):
                    reply = await self.score(solutions, strict)
                case Select(question):
                    reply = await self._select(question)
        return results[0]

    async def _keys(self, answers: Sequence[str]) -> Begun:
        """The keys by which answers are compared."""
        equivalence = self._service.equivalence

        def begin() -> Begun:
            begun = equivalence.begin(answers, self.lease.scope)
            if all(map(is_integer, begun.wanted)):  # at once: handing them to a thread would take longer
                equivalence.advance(begun, math.inf)
            return begun

        with span("answers"):
            begun = await self.lease.read(begin)
            while begun.wanted:  # in slices, so that nobody waits for all of another's answers
                slice = partial(equivalence.advance, begun, _SLICE)
                await self.lease.read(slice, len(begun.wanted[-1]), small=-1)
        return begun

    async def score(self, solutions: Mapping[int, Solution], strict: bool) -> Mapping[int, Outcome]:
        """The outcome of each solution; for several models the mean of their scores. `strict`: nothing is run if a
        solution is too long for a model, or lacks what a model scores by.

        Raises `Overloaded`, `ModelUnavailable` and `DeadlineExceeded`.
        """
        lease, lengths = self.lease, [solution_length(solution) for solution in solutions.values()]
        with ExitStack() as stack:  # room in every model, or in none
            reserved = [stack.enter_context(model.reserve(lengths, lease.share)) for model in self.models]
            inputs = await all_of(self.encode(model, solutions) for model in self.models)
            unscorable = {k: item for items in inputs for k, item in items.items() if isinstance(item, Unscorable)}
            if len(unscorable) == len(solutions) or (strict and unscorable):
                return dict(sorted(unscorable.items()))
            batches = [
                [item for k, item in items.items() if isinstance(item, Encoded) and k not in unscorable]
                for items in inputs
            ]
            tokens = sum(len(item.ids) for batch in batches for item in batch)
            lease.charge(tokens)
            lease.usage += Usage(tokens=tokens)  # also if it is cancelled
            results = await all_of(map(self._run, self.models, reserved, batches))
        usage = sum((result.usage for result in results), Usage())
        lease.usage += replace(usage, tokens=usage.tokens - tokens)
        lease.charge(usage.tokens - tokens)  # a judge's server counts its own
        scores = results[0].scores
        if len(results) > 1:
            scores = averaged(
                [result.scores for result in results], [model.engine.description for model in self.models]
            )
        scored = [index for index in solutions if index not in unscorable]
        return outcomes(inputs[0] | unscorable, dict(zip(scored, scores, strict=True)))

    async def _select(self, question: Question) -> Selected:
        """What a model prefers; without preferences if it can't be asked, or does not answer in most of the time that
        is left."""
        assert self.compares is not None, "else nothing is compared"
        now = asyncio.get_running_loop().time()
        limit = now + _SELECTING * (self.lease.deadline - now)
        why = ""
        try:
            with span("select"):
                async with asyncio.timeout_at(limit) as timeout:
                    selected = await self.compares(question)
            self.lease.usage += selected.usage
            return selected
        except TimeoutError:
            if not timeout.expired():
                raise
            why = f"the model did not answer within {limit - now:.1f} s"
        except _NO_COMPARISON as error:
            why = str(error)
        return Selected(why=why, failed=True)

    async def _ask_judge(self, question: Question) -> Selected:
        """Raises `QuotaExceeded`, and as `Selector.select`."""
        selector = self._service.selector
        assert selector is not None, "else nothing is compared"
        async with self.lease.reserving(selector.prompt_tokens(question)) as use:
            selected = await selector.select(question)
            use(selected.usage.tokens)
        return selected

    async def encode(self, model: Model, solutions: Mapping[int, Solution]) -> dict[int, Encoded | Unscorable]:
        """As `unprm.pipeline.encode`, in turns with other requests; a cancelled request gets no further turn. Raises
        `Overloaded`."""
        begun, inputs, too_long = model.clock(), dict[int, Encoded | Unscorable](), dict[str, int]()
        with span("encode"), model.encoding([*map(solution_length, solutions.values())], self.lease.share):
            for size, piece in _pieces(solutions, model.PIECE):
                work = partial(encode, model.engine, piece, self.lease.scope, too_long)
                inputs |= await self.lease.read(work, size, small=model.PIECE // _ENCODING)
        self.lease.usage += Usage(tokenization_ms=1000 * (model.clock() - begun))
        tokens = {index: len(item.ids) for index, item in inputs.items() if isinstance(item, Encoded)}
        model.note_density(sum(solution_length(solutions[index]) for index in tokens), sum(tokens.values()))
        return inputs

    async def _run(self, model: Model, reservation: Reservation, items: Sequence[Encoded]) -> ScoredItems:
        lease = self.lease
        with span("score"):
            try:
                result = await model.queue.score(
                    items, deadline=lease.deadline, caller=lease.share, reservation=reservation
                )
            except DeadlineExceeded:  # the queue knows only the time that was left
                raise DeadlineExceeded(lease.seconds) from None
            self._service.metrics.count_usage(model.name, result.usage)
            annotate({"model": model.name, "computed_tokens": result.usage.computed_tokens})
            return result


def _pieces(solutions: Mapping[int, Solution], minimum: int) -> Iterator[tuple[int, dict[int, Solution]]]:
    """The solutions in parts of at least `minimum` characters, one for each turn, and the characters of each part."""
    size, piece = 0, dict[int, Solution]()
    for index, solution in solutions.items():
        piece[index] = solution
        size += solution_length(solution)
        if size >= minimum:
            yield size, piece
            size, piece = 0, {}
    if piece:
        yield size, piece
