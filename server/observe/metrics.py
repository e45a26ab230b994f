"""Metrics for Prometheus, in a registry of the app's own."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unprm.engines.scheduler import BatchFigures
from unprm.types import Usage
from unprm.wire import VoteOut

from .tracing import add_event

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CALL_SECONDS = (*_SECONDS, 120.0, 300.0, 600.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)


class Metrics:
    """Counters of one app. Labels have few values: route templates, statuses, codes of errors, names of served models,
    strategies, and the outcomes that `unprm.openai.client.Observe` lists."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._requests = counter("unprm_requests", "Requests answered.", ("route", "status", "code"))
        self._seconds = histogram("unprm_request_seconds", "Time to the answer.", ("route",), buckets=_SECONDS)
        model, call = ("model",), ("outcome",)
        self._tokens = counter("unprm_tokens", "Tokens of requests.", model)
        self._computed = counter("unprm_computed_tokens", "Tokens the model ran.", model)
        self._cached = counter("unprm_cached_tokens", "Tokens reused from earlier computation.", model)
        self._batch_items = histogram("unprm_batch_solutions", "Distinct sequences in a batch.", model, buckets=_SIZES)
        self._batch_tokens = histogram("unprm_batch_tokens", "Tokens in a batch.", model, buckets=_TOKENS)
        self._forward = histogram("unprm_forward_seconds", "Time the model took for a batch.", model, buckets=_SECONDS)
        self._waits = histogram("unprm_queue_seconds", "Time until a request's first batch.", model, buckets=_SECONDS)
        self._unread = counter("unprm_unread_steps", "Steps on which a judge gave no verdict.", model)
        self._upstream = histogram(
            "unprm_upstream_seconds", "Time of a call to the upstream.", call, buckets=_CALL_SECONDS
        )
        self._judge = histogram("unprm_judge_seconds", "Time of a call to the judge.", call, buckets=_CALL_SECONDS)
        self._votes = counter("unprm_votes", "Votes taken.", ("strategy",))
        self._ties = counter("unprm_ties", "Votes that ended in a tie.", ("strategy",))

    def answered(self, route: str, status: int, code: str, seconds: float) -> None:
        """Counts a request; `code`: the error's, "" without one."""
        self._requests.labels(route, str(status), code).inc()
        self._seconds.labels(route).observe(seconds)

    def used(self, model: str, usage: Usage) -> None:
        """Counts what a model did for a request."""
        self._tokens.labels(model).inc(usage.tokens)
        self._computed.labels(model).inc(usage.computed_tokens)
        self._cached.labels(model).inc(usage.cached_tokens)

    def ran(self, model: str, batch: BatchFigures) -> None:
        """Counts a batch of a model."""
        self._batch_items.labels(model).observe(batch.items)
        self._batch_tokens.labels(model).observe(batch.tokens)
        self._forward.labels(model).observe(batch.seconds)
        self._unread.labels(model).inc(batch.unread)
        for seconds in batch.waits:
            self._waits.labels(model).observe(seconds)

    def called_upstream(self, seconds: float, outcome: str) -> None:
        """Counts a call to the upstream."""
        self._upstream.labels(outcome).observe(seconds)

    def called_judge(self, seconds: float, outcome: str) -> None:
        """Counts a call to the judge. May be called from any thread."""
        self._judge.labels(outcome).observe(seconds)

    def voted(self, vote: VoteOut) -> None:
        """Counts a vote, and adds it to the trace as OpenTelemetry's conventions for generative AI name a result: the
        strategy, the score by which it elected, if it has one, and `tie` or what decided it."""
        self._votes.labels(vote.strategy).inc()
        self._ties.labels(vote.strategy).inc(vote.tie)
        score, name = vote.candidates[0].score, "gen_ai.evaluation"
        attributes = {f"{name}.name": vote.strategy, f"{name}.score.label": "tie" if vote.tie else vote.decided_by}
        add_event(f"{name}.result", attributes if score is None else {**attributes, f"{name}.score.value": score})

    def gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is read at each scrape."""
        Gauge(name, help, registry=self._registry).set_function(value)

    def gauge_by_model(self, name: str, help: str, values: Callable[[], Mapping[str, float]]) -> None:
        """As `gauge`, with a value for each model's name."""

        def family() -> Iterable[Metric]:
            metric = GaugeMetricFamily(name, help, labels=["model"])
            for model, value in values().items():
                metric.add_metric([model], value)
            yield metric

        self._registry.register(_Collected(family))

    def counter(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Adds a counter whose value is kept elsewhere."""
        self._registry.register(_Collected(lambda: [CounterMetricFamily(name, help, value=value())]))

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Collected(Collector):
    """What a function returns at each scrape."""

    def __init__(self, function: Callable[[], Iterable[Metric]]) -> None:
        self._function = function

    def collect(self) -> Iterable[Metric]:
        return self._function()
