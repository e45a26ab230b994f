"""OpenTelemetry traces. A span has what the log has: routes, counts, times, and names, but no caller's text."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from unprm.openai.completion import Samples

from .lease import Lease

Attributes = Mapping[str, str | int | float]

_NAME = re.compile(r"[A-Za-z0-9._/:@-]{1,128}")
"""Names and ids that a span may have although a caller, or an upstream, made them up."""

_tracing = False


class TracingUnavailable(Exception):
    """Traces are configured, but OpenTelemetry is not installed."""


def configure_traces(endpoint: str) -> None:
    """Sends this process's traces and votes to a collector: OTLP over HTTP, `endpoint` without `/v1/traces`. Calls of
    httpx have spans from now on, and pass the trace on."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # else the old names of attributes
    try:
        from opentelemetry import _logs, trace
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable("traces need OpenTelemetry: pip install '.[trace]' in unprm's directory") from error
    address, resource = endpoint.rstrip("/"), Resource.create({"service.name": "unprm"})
    traces, logs = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{address}/v1/logs")))
    trace.set_tracer_provider(traces)
    _logs.set_logger_provider(logs)
    HTTPXClientInstrumentor().instrument()
    global _tracing
    _tracing = True


@contextmanager
def span(name: str, kind: str = "INTERNAL", traceparent: str = "") -> Iterator[None]:
    """A span inside the current one, or within a caller's trace, whose `tracestate`, its text, stays here. `kind`: of
    OpenTelemetry's `SpanKind`."""
    if not _tracing:
        yield
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    current = trace.get_tracer("unprm").start_span(name, parent, trace.SpanKind[kind])
    # an error's message, which may have a caller's text, is no part of the span
    with trace.use_span(current, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException:  # a cancelled request's span has failed, too
            current.set_status(trace.StatusCode.ERROR)
            raise


def annotate(attributes: Attributes) -> None:
    """Adds attributes to the current span."""
    if _tracing:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(dict(attributes))


def annotate_request(fields: Attributes) -> None:
    """Adds the fields of a request's log line to its span, and names the span by them."""
    if _tracing:
        from opentelemetry import trace

        current = trace.get_current_span()
        conventional = {"http.request.method": "method", "http.route": "route", "http.response.status_code": "status"}
        current.set_attributes({**fields, **{name: fields[field] for name, field in conventional.items()}})
        current.update_name(f"{fields['method']} {fields['route']}")
        if int(fields["status"]) >= 500:
            current.set_status(trace.StatusCode.ERROR)


def annotate_generation(requested: str, samples: Samples, answer: str) -> None:
    """Adds completions to the current span by OpenTelemetry's conventions for generative AI: the models asked for and
    answering, the answer's id, and the tokens."""
    named = {"request.model": requested, "response.model": samples.model, "response.id": answer}
    known = {f"gen_ai.{name}": value for name, value in named.items() if _NAME.fullmatch(value)}
    usage = {"input_tokens": samples.usage.prompt_tokens, "output_tokens": samples.usage.completion_tokens}
    told = {f"gen_ai.usage.{name}": tokens for name, tokens in usage.items()}
    annotate({"gen_ai.operation.name": "chat", **known, **told})


def report_evaluation(strategy: str, label: str, score: float | None, lease: Lease) -> None:
    """Reports an elected answer as a log event by the same conventions: the strategy, what decided, the score, if there
    is one, and the id of the response, or of a request whose response has none."""
    if _tracing:
        from opentelemetry import _logs

        name = "gen_ai.evaluation"
        attributes: dict[str, str | float] = {f"{name}.name": strategy, f"{name}.score.label": label}
        attributes["gen_ai.response.id"] = lease.response_id or lease.request_id
        if score is not None:
            attributes[f"{name}.score.value"] = score
        _logs.get_logger("unprm").emit(event_name=f"{name}.result", attributes=attributes)
