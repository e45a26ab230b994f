"""What the routes work with, from start to shutdown."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Annotated

from fastapi import Depends, Request

from server.journal import Journal
from server.metrics import Metrics
from server.model import Source, Watch
from server.models import Models
from server.settings import Settings
from server.slots import Slots
from unprm import answers as answer_text
from unprm.equivalence import Comparison, Equivalence
from unprm.errors import Overloaded, ShuttingDown

logger = logging.getLogger(__name__)

_BODIES = 32
"""Bodies of the greatest size that there is room for at a time."""
_COMPARERS = 8
"""Requests that have answers compared by processes at a time, each by its own."""

_COMPARER_MB = 512
"""Memory that such a process may take."""


class Service:
    """Models, equivalence of answers and metrics of one app, and the count of what it works on."""

    def __init__(self, settings: Settings, sources: Source | Mapping[str, Source], lost: Callable[[], None]) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.journal = None
        if settings.journal is not None:
            self.journal = Journal(settings.journal, int(settings.journal_mb * 2**20))
        self.models = Models(sources, settings, Watch(self.metrics.ran, lost))
        self._equivalence = Equivalence(
            deadline=settings.equivalence_deadline, workers=_COMPARERS, memory_mb=_COMPARER_MB
        )
        self._comparers = ThreadPoolExecutor(_COMPARERS, "equivalence")
        self._slots = Slots(self._comparers, _COMPARERS)
        self._running = 0
        self._held_bytes = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._observe()

    async def start(self) -> None:
        """Has the parts start; neither the model nor the comparing processes are waited for."""
        self._comparers.submit(self._start_comparing)
        self.models.start()

    async def drain(self) -> None:
        """Refuses new work and waits for what runs, as long as the settings allow."""
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), self.settings.drain_seconds)
        except TimeoutError:
            await self.models.stop(0)

    async def stop(self) -> None:
        """Ends the parts; nothing is left running."""
        self._draining = True
        await self.models.stop(0)
        self._comparers.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._equivalence.close)
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close)

    def check_ready(self) -> None:
        """Raises `ShuttingDown` or `ModelUnavailable`, with the reason, if work would be refused."""
        if self._draining:
            raise ShuttingDown
        self.models.check_ready()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request while it runs; raises `ShuttingDown` if none is taken any more."""
        if self._draining:
            raise ShuttingDown
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """What counts the bytes of a request's body while the request lasts; it raises `Overloaded` where the bodies
        of all requests together would be too much."""
        own, limit = 0, _BODIES * self.settings.max_body_bytes

        def hold(count: int) -> None:
            nonlocal own
            if self._held_bytes + count > limit:
                raise Overloaded(f"the requests that are worked on have {self._held_bytes} bytes, of {limit}", 1.0)
            self._held_bytes += count
            own += count

        try:
            yield hold
        finally:
            self._held_bytes -= own

    async def classes(self, answers: Sequence[str | None], caller: str) -> tuple[list[int | None], list[int]]:
        """The class of equal answers that each belongs to, None for those that are None; and the indices of the
        answers that could not be compared as mathematics in time. `caller` names whose answers they are."""
        known = [index for index, answer in enumerate(answers) if answer is not None]
        compared = await self._compared([answer for answer in answers if answer is not None], caller)
        classes: list[int | None] = [None] * len(answers)
        for index, number in zip(known, compared.classes, strict=True):
            classes[index] = number
        return classes, [known[index] for index in compared.as_text]

    async def _compared(self, answers: Sequence[str], caller: str) -> Comparison:
        if all(map(answer_text.is_integer, answers)):  # at once: no process is asked for these
            return self._equivalence.finish(self._equivalence.begin(answers))
        begun = await asyncio.to_thread(self._equivalence.begin, answers)
        if begun.settled:
            return self._equivalence.finish(begun)
        # In threads of their own, so that those who wait for a process hold up nobody else; the time that a request
        # has for comparing begins once it has its slot.
        return await self._slots.run(caller, partial(self._equivalence.finish, begun))

    def _start_comparing(self) -> None:
        try:
            self._equivalence.start()
        except Exception:  # votes go on without the processes, and say so in the log
            if not self._draining:
                logger.exception("answers are compared as text: the processes that compare them don't start")

    def _observe(self) -> None:
        gauge, counter = self.metrics.gauge, self.metrics.counter
        models, equivalence = self.models, self._equivalence
        if (journal := self.journal) is not None:
            counter("unprm_journal_dropped", "Requests that the journal lacks.", lambda: journal.dropped)
        gauge("unprm_running_requests", "Requests being worked on.", lambda: self._running)
        gauge("unprm_queued_tokens", "Tokens that wait for the model.", lambda: models.queued_tokens)
        gauge("unprm_queued_requests", "Requests that wait for the model.", lambda: models.queued_requests)
        counter("unprm_equivalence_answers", "Answers told apart.", lambda: equivalence.stats.compared)
        counter(
            "unprm_equivalence_timeouts",
            "Answers compared as text for lack of time.",
            lambda: equivalence.stats.timeouts,
        )
        counter(
            "unprm_equivalence_crashes",
            "Answers that cost a worker process.",
            lambda: equivalence.stats.crashes,
        )
        counter(
            "unprm_equivalence_failures",
            "Answers compared as text because comparing them met an error.",
            lambda: equivalence.stats.failures,
        )


async def _service(request: Request) -> Service:  # async: FastAPI would have a thread call it otherwise
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
"""The app's, for its routes."""
