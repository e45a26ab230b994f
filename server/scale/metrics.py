"""Joins the metrics of all replicas into one answer for Prometheus."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LABEL = "replica"


def joined(replicas: Iterable[tuple[str, Iterable[Metric]]]) -> bytes:
    """The metrics of named replicas in Prometheus' text format: every metric appears once, and a label names the
    replica of each sample."""
    whole: dict[str, Metric] = {}
    for replica, metrics in replicas:
        for metric in metrics:
            merged = whole.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit))
            merged.samples += [sample._replace(labels={LABEL: replica, **sample.labels}) for sample in metric.samples]
    registry = CollectorRegistry()
    registry.register(_Merged(whole.values()))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
