"""The service behind the routes, from start to shutdown."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from unprm.answers import canonical as answer_text
from unprm.answers.equivalence import Comparison, Equivalence
from unprm.errors import ShuttingDown

from .http.context import Context
from .models.model import Source, Watch
from .models.registry import Models
from .observe.journal import Journal
from .observe.metrics import Metrics
from .settings import Settings
from .sharing import Budget, FairPool, InUse

T = TypeVar("T")

logger = logging.getLogger(__name__)

BODIES = 32
"""In-flight bodies may total this many maximum-size bodies."""
_SMALL = 32_768
"""Up to this many bytes are read at once: handing them to a thread would take longer."""
_THREADS = 2
"""Threads of each pool that splits or encodes texts: while a long text occupies one, the other is free."""
_COMPARERS = 8
"""Requests whose answers are compared at the same time, each by a process of its own."""

_COMPARER_MB = 512
"""Memory limit of such a process, in MiB."""


class Service:
    """Models, answer equivalence and metrics of one app, and the count of its running requests."""

    def __init__(self, settings: Settings, sources: Source | Mapping[str, Source], lost: Callable[[], None]) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.journal = None
        if settings.journal is not None:
            self.journal = Journal(settings.journal, int(settings.journal_mb * 2**20))
        self._readers = FairPool("readers", _THREADS)
        self._encoders = FairPool("encoders", _THREADS)
        self.models = Models(sources, settings, Watch(self.metrics.ran, lost), self._encoders)
        self._equivalence = Equivalence(
            deadline=settings.equivalence_deadline, workers=_COMPARERS, memory_mb=_COMPARER_MB
        )
        self._comparers = FairPool("comparers", _COMPARERS)
        self._running = InUse()
        self.bodies = Budget(BODIES * settings.max_body_bytes, "bytes")
        """Bytes of the bodies and the answers of all requests, held until the answers are written; and of what an
        upstream answers, held while it is read."""
        self._draining = False
        self._observe()

    async def start(self) -> None:
        """Starts the parts; waits neither for the model nor for the comparing processes."""
        asyncio.get_running_loop().run_in_executor(None, self._start_comparing)
        self.models.start()

    async def drain(self) -> None:
        """Refuses new work and waits for running requests, for `drain_seconds` at most."""
        self._draining = True
        try:
            await asyncio.wait_for(self._running.ended(), self.settings.drain_seconds)
        except TimeoutError:
            await self.models.stop(0)

    async def stop(self) -> None:
        """Ends the parts; nothing is left running."""
        self._draining = True
        await self.models.stop(0)
        self._comparers.close()
        self._readers.close()
        self._encoders.close()
        await asyncio.to_thread(self._equivalence.close)
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close)

    def check_ready(self) -> None:
        """Raises `ShuttingDown` or `ModelUnavailable`, with the reason, if work would be refused."""
        if self._draining:
            raise ShuttingDown
        self.models.check_ready()

    def admitted(self) -> AbstractContextManager[None]:
        """Counts a request while it runs; raises `ShuttingDown` if no more are accepted."""
        if self._draining:
            raise ShuttingDown
        return self._running.one()

    async def read(self, context: Context, function: Callable[[], T], size: int | None = None) -> T:
        """Runs a function on `size` bytes, by default on all texts of a request: at once if that is little, else by
        turns in threads."""
        cost = context.size if size is None else size
        if cost <= _SMALL:
            return function()
        return await self._readers.request(context.share).run(cost, function)

    async def classes(self, answers: Sequence[str | None], caller: str) -> tuple[list[int | None], list[int]]:
        """The class of equal answers that each answer belongs to, None for None; and the indices of the answers that
        could not be compared as mathematics in time. `caller`: whose answers they are."""
        known = [index for index, answer in enumerate(answers) if answer is not None]
        compared = await self._compared([answer for answer in answers if answer is not None], caller)
        classes: list[int | None] = [None] * len(answers)
        for index, number in zip(known, compared.classes, strict=True):
            classes[index] = number
        return classes, [known[index] for index in compared.as_text]

    async def _compared(self, answers: Sequence[str], caller: str) -> Comparison:
        if all(map(answer_text.is_integer, answers)):  # at once: these need no process
            return self._equivalence.finish(self._equivalence.begin(answers))
        begun = await self._readers.request(caller).run(
            sum(map(len, answers)), partial(self._equivalence.begin, answers)
        )
        if begun.settled:
            return self._equivalence.finish(begun)
        # In threads of their own, so that requests that wait for a process delay no others; a request's time for
        # comparing begins with its turn.
        turns = self._comparers.request(caller)
        return await turns.run(len(answers), partial(self._equivalence.finish, begun))

    def _start_comparing(self) -> None:
        try:
            self._equivalence.start()
        except Exception:  # votes go on without the processes; the log says so
            if not self._draining:
                logger.exception("answers are compared as text: the processes that compare them don't start")

    def _observe(self) -> None:
        gauge, counter = self.metrics.gauge, self.metrics.counter
        models, equivalence = self.models, self._equivalence
        if (journal := self.journal) is not None:
            counter("unprm_journal_dropped", "Requests that the journal lacks.", lambda: journal.dropped)
        gauge("unprm_running_requests", "Requests being worked on.", lambda: self._running.count)
        gauge("unprm_loading_models", "Served models that are being loaded.", lambda: models.loading)
        gauge("unprm_queued_tokens", "Tokens that wait for the model.", lambda: models.queued_tokens)
        gauge("unprm_queued_requests", "Requests that wait for the model.", lambda: models.queued_requests)
        counter("unprm_equivalence_answers", "Answers told apart.", lambda: equivalence.stats.compared)
        counter(
            "unprm_equivalence_timeouts",
            "Answers compared as text for lack of time.",
            lambda: equivalence.stats.timeouts,
        )
        counter("unprm_equivalence_crashes", "Answers that cost a worker process.", lambda: equivalence.stats.crashes)
        counter(
            "unprm_equivalence_failures",
            "Answers compared as text because comparing them met an error.",
            lambda: equivalence.stats.failures,
        )


async def _service(request: Request) -> Service:  # async: FastAPI would otherwise call it in a thread
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
"""The app's service, as a dependency of its routes."""
