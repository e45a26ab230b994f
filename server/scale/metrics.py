"""What all replicas tell Prometheus, as one answer."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LABEL = "replica"


def joined(told: Iterable[tuple[str, Iterable[Metric]]]) -> bytes:
    """The metrics of replicas, each with its name, in Prometheus' text format: every metric is there once, and a label
    says whose a figure is."""
    whole: dict[str, Metric] = {}
    for replica, metrics in told:
        for own in metrics:
            metric = whole.setdefault(own.name, Metric(own.name, own.documentation, own.type, own.unit))
            metric.samples += [sample._replace(labels={LABEL: replica, **sample.labels}) for sample in own.samples]
    registry = CollectorRegistry()
    registry.register(_Told(whole.values()))
    return generate_latest(registry)


class _Told(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
