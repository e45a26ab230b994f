"""Metrics for Prometheus, in a registry of the app's own."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from unprm.engines.queue import BatchFigures
from unprm.types import Usage
from unprm.wire import VoteOut

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)


class Metrics:
    """Counters of one app. Labels have few values: route templates, statuses, strategies."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter("unprm_requests", "Requests answered.", ("route", "status"), registry=self._registry)
        self._seconds = Histogram(
            "unprm_request_seconds",
            "Time to the answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter("unprm_tokens", "Tokens asked for.", registry=self._registry)
        self._computed = Counter("unprm_computed_tokens", "Tokens the model ran.", registry=self._registry)
        self._cached = Counter("unprm_cached_tokens", "Tokens known from before.", registry=self._registry)
        self._batch_items = Histogram(
            "unprm_batch_solutions", "Distinct sequences in a batch.", buckets=_SIZES, registry=self._registry
        )
        self._batch_tokens = Histogram(
            "unprm_batch_tokens", "Tokens in a batch.", buckets=_TOKENS, registry=self._registry
        )
        self._forward = Histogram(
            "unprm_forward_seconds", "Time the model took for a batch.", buckets=_SECONDS, registry=self._registry
        )
        self._waits = Histogram(
            "unprm_queue_seconds", "Time until a request's first batch.", buckets=_SECONDS, registry=self._registry
        )
        self._votes = Counter("unprm_votes", "Votes taken.", ("strategy",), registry=self._registry)
        self._ties = Counter("unprm_ties", "Votes that ended in a tie.", ("strategy",), registry=self._registry)

    def answered(self, route: str, status: int, seconds: float, usage: Usage) -> None:
        """Counts a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        self._tokens.inc(usage.tokens)
        self._computed.inc(usage.computed_tokens)
        self._cached.inc(usage.cached_tokens)

    def ran(self, batch: BatchFigures) -> None:
        """Counts a batch of a model."""
        self._batch_items.observe(batch.items)
        self._batch_tokens.observe(batch.tokens)
        self._forward.observe(batch.seconds)
        for seconds in batch.waits:
            self._waits.observe(seconds)

    def voted(self, vote: VoteOut) -> None:
        """Counts a vote."""
        self._votes.labels(vote.strategy).inc()
        self._ties.labels(vote.strategy).inc(vote.tie)

    def gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is read at each scrape."""
        Gauge(name, help, registry=self._registry).set_function(value)

    def counter(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Adds a counter whose value is kept elsewhere."""
        self._registry.register(_Elsewhere(name, help, value))

    def collect(self) -> list[Metric]:
        """The current metrics, for another process to expose."""
        return list(self._registry.collect())

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Elsewhere(Collector):
    def __init__(self, name: str, help: str, value: Callable[[], float]) -> None:
        self._name, self._help, self._value = name, help, value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._help, value=self._value())
