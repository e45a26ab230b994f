"""The service behind the routes, from start to shutdown."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unprm.answers.equivalence import Equivalence
from unprm.election import acceptance
from unprm.errors import FAILURES, ModelInvalid, ModelUnavailable, ShuttingDown, UnprmError

from .journal import Journal
from .lease import Admission
from .models.model import EngineOrLoader, LoadModel
from .models.registry import Models
from .observe import Metrics
from .reloading import Reloading
from .settings import Settings

if TYPE_CHECKING:
    from unprm.engines.judge.selector import Selector

logger = logging.getLogger(__name__)

_RETRY = 5.0
"""Seconds between attempts to test a judge that can't be reached."""


class Service(Collector):
    """What the routes of one app share: admission, models, answer equivalence and metrics. `open_model`: loads one that
    `/admin/models` asks for."""

    def __init__(
        self,
        settings: Settings,
        sources: EngineOrLoader | Mapping[str, EngineOrLoader],
        lost: Callable[[], None],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.journal = None
        if settings.journal is not None:
            size = int(settings.journal_mb * 2**20)
            self.journal = Journal(settings.journal, size, texts=not settings.journal_without_texts)
            metrics.registry.register(self.journal)
        path = settings.vote_calibration
        self.vote_calibration = None if path is None else acceptance.read(path)
        self.models = Models(sources, settings, metrics, lost, clock)
        self.selector: Selector | None = None
        self.equivalence = Equivalence(deadline=settings.equivalence_deadline)
        self.admission = Admission(settings.max_body_bytes)
        self.files = list[Reloading]()
        self.open_model: LoadModel | None = None
        metrics.registry.register(self)

    async def drain(self) -> None:
        """Refuses new work and waits for running requests, for `max_drain_seconds` at most; those that are left then,
        or when it is cancelled, end with `ShuttingDown`."""
        self.admission.draining = True
        try:
            await asyncio.wait_for(self.admission.running.ended.wait(), self.settings.max_drain_seconds)
        except TimeoutError:
            await self.models.stop()
        finally:
            self.admission.end(ShuttingDown())

    async def stop(self) -> None:
        """Ends the parts; nothing is left running."""
        self.admission.draining = True
        await self.models.stop()
        self.admission.threads.close()
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close)

    def check_ready(self) -> None:
        """Raises `ShuttingDown` or `ModelUnavailable`, with the reason, if no work can be done. Load does not count."""
        if self.admission.draining:
            raise ShuttingDown
        for model in self.models:
            model.queue.check_ready()
        if self.selector is not None and self.selector.reason is not None and not self.settings.has_judge:
            raise ModelUnavailable(self.selector.reason)

    async def test_selector(self) -> None:
        """Has the judge of `select` tested, again and again until it can be reached."""
        while self.selector is not None and self.selector.reason is not None:
            try:
                await self.selector.test()
            except ModelInvalid as error:
                logger.error("select can't be served: %s", error)
                return
            except UnprmError as error:
                logger.warning("the judge of select can't be tested: %s", error)
                await asyncio.sleep(_RETRY)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("unprm_running_requests", "Requests being worked on.", self.admission.running.count)
        loading, ready = sum(model.state.state == "loading" for model in self.models), 0
        with suppress(UnprmError):
            self.check_ready()
            ready = 1
        yield GaugeMetricFamily("unprm_loading_models", "Served models that are being loaded.", loading)
        yield GaugeMetricFamily("unprm_ready", "Whether the server takes work, as /readyz says.", ready)
        tokens = GaugeMetricFamily("unprm_queued_tokens", "Tokens that wait for the model.", labels=["model"])
        requests = GaugeMetricFamily("unprm_queued_requests", "Requests that wait for the model.", labels=["model"])
        used = GaugeMetricFamily("unprm_cache_utilization", "Fraction of the prefix cache in use.", labels=["model"])
        for model in self.models:
            for metric, value in zip((tokens, requests, used), model.load, strict=True):
                metric.add_metric([model.name], value)
        yield from (tokens, requests, used)
        help = "Whether a file's newest version can't be used, so that an older one is."
        stale = GaugeMetricFamily("unprm_stale_files", help, labels=["contents"])
        for file in self.files:
            file.refresh()
            stale.add_metric([file.noun], file.stale)
        yield stale
        yield CounterMetricFamily("unprm_unreadable_texts", "Texts that a reader failed on.", FAILURES.count)
        stats = self.equivalence.stats
        for name, help, count in (
            ("unprm_equivalence_answers", "Answers compared.", stats.compared),
            ("unprm_equivalence_timeouts", "Answers compared as text because time ran out.", stats.late),
            ("unprm_equivalence_failures", "Answers compared as text because of an error.", stats.failures),
        ):
            yield CounterMetricFamily(name, help, count)


async def _service(request: Request) -> Service:  # async: FastAPI would otherwise call it in a thread
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
"""The app's service, as a dependency of its routes."""
