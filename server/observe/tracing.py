"""OpenTelemetry traces, if they are configured: a span for each request and for each part of its work, and an event for
each vote.

A span has what the log has: routes, counts and times, never a caller's text.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Attributes = Mapping[str, str | int | float]

_configured = False


class TracingUnavailable(Exception):
    """Traces are configured, but OpenTelemetry is not installed."""


def configure(endpoint: str) -> None:
    """Sends this process's traces to a collector: OTLP over HTTP, `endpoint` without `/v1/traces`."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable("traces need OpenTelemetry: pip install 'unprm[trace]'") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "unprm"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)
    global _configured
    _configured = True


@contextmanager
def span(name: str, headers: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A span inside the current one or, with a request's `headers`, inside its caller's trace.

    Yields the argument for `set_attributes`.
    """
    if not _configured:
        yield None
        return
    from opentelemetry import propagate, trace

    parent = propagate.extract(headers) if headers is not None else None
    with trace.get_tracer("unprm").start_as_current_span(name, parent, record_exception=False) as current:
        yield current


def add_event(name: str, attributes: Attributes) -> None:
    """Adds an event to the current span."""
    if _configured:
        from opentelemetry import trace

        trace.get_current_span().add_event(name, dict(attributes))


def set_attributes(current: Any, attributes: Attributes) -> None:
    """Adds attributes to a span."""
    if current is not None and current.is_recording():
        current.set_attributes(dict(attributes))
