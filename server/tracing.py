"""OpenTelemetry traces. A span has what the log has: routes, counts, times, and names, but no caller's text."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unprm.openai.completion import Samples

from .admission import Context

Attributes = Mapping[str, str | int | float]

_NAME = re.compile(r"[A-Za-z0-9._/:@-]{1,128}")
"""Names and ids that a span may have although a caller, or an upstream, made them up."""
_TRACE_HEADERS = (b"traceparent", b"tracestate")

_tracing = False


class TracingUnavailable(Exception):
    """Traces are configured, but OpenTelemetry is not installed."""


def configure_traces(endpoint: str) -> None:
    """Sends this process's traces and votes to a collector: OTLP over HTTP, `endpoint` without `/v1/traces`. Calls of
    httpx have spans from now on, and pass the trace on."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # else the old names of attributes
    try:
        import opentelemetry.instrumentation.asgi  # noqa: F401  # which `traced` needs
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
        raise TracingUnavailable("traces need OpenTelemetry: pip install 'unprm[trace]'") from error
    address, resource = endpoint.rstrip("/"), Resource.create({"service.name": "unprm"})
    traces, logs = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{address}/v1/logs")))
    trace.set_tracer_provider(traces)
    _logs.set_logger_provider(logs)
    HTTPXClientInstrumentor().instrument()
    global _tracing
    _tracing = True


def traced(app: ASGIApp) -> ASGIApp:
    """ASGI middleware: a server's span for each request, within its caller's trace; without traces, nothing."""
    return _Traced(app) if _tracing else app


class _Traced:
    """OpenTelemetry's middleware sees neither the path, query, address and program of a caller, nor the body of the
    answer, at whose end it would end the span before all is known.
    """

    def __init__(self, app: ASGIApp) -> None:
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

        self.app = OpenTelemetryMiddleware(_Unveiled(app), exclude_spans=["receive", "send"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen = {name: scope[name] for name in ("type", "method", "scheme", "http_version", "server")}
            traced = [(name, value) for name, value in scope["headers"] if name in _TRACE_HEADERS and value.isascii()]
            scope = {**seen, "headers": traced, "unprm.whole": (scope, send)}
        await self.app(scope, receive, send)


class _Unveiled:
    """What OpenTelemetry's middleware calls: the app, with the whole of what `_Traced` got."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole, sent = scope.get("unprm.whole", (scope, send))

        async def send_start(message: Message) -> None:
            await (send if message["type"] == "http.response.start" else sent)(message)

        await self.app(whole, receive, send_start)


@contextmanager
def span(name: str, *, calls: bool = False) -> Iterator[None]:
    """A span inside the current one; `calls`: of a call to another server."""
    if not _tracing:
        yield
        return
    from opentelemetry import trace

    kind = trace.SpanKind.CLIENT if calls else trace.SpanKind.INTERNAL
    with trace.get_tracer("unprm").start_as_current_span(name, kind=kind, record_exception=False):
        yield


def annotate(attributes: Attributes, route: str | None = None) -> None:
    """Adds attributes to the current span; `route`: what names it, if it is a request's."""
    if _tracing:
        from opentelemetry import trace

        current = trace.get_current_span()
        current.set_attributes(dict(attributes))
        if route is not None:
            current.set_attribute("http.route", route)
            current.update_name(f"{attributes['method']} {route}")


def annotate_generation(requested: str, samples: Samples, answer: str) -> None:
    """Adds completions to the current span by OpenTelemetry's conventions for generative AI: the models asked for and
    answering, the answer's id, and the tokens."""
    named = {"request.model": requested, "response.model": samples.model, "response.id": answer}
    known = {f"gen_ai.{name}": value for name, value in named.items() if _NAME.fullmatch(value)}
    usage = {"input_tokens": samples.usage.prompt_tokens, "output_tokens": samples.usage.completion_tokens}
    told = {f"gen_ai.usage.{name}": tokens for name, tokens in usage.items()}
    annotate({"gen_ai.operation.name": "chat", **known, **told})


def report_evaluation(strategy: str, label: str, score: float | None, context: Context) -> None:
    """Reports an elected answer as a log event by the same conventions: the strategy, what decided, the score, if there
    is one, and the id of the response, or of a request whose response has none."""
    if _tracing:
        from opentelemetry import _logs

        name = "gen_ai.evaluation"
        attributes: dict[str, str | float] = {f"{name}.name": strategy, f"{name}.score.label": label}
        attributes["gen_ai.response.id"] = context.response_id or context.request_id
        if score is not None:
            attributes[f"{name}.score.value"] = score
        _logs.get_logger("unprm").emit(event_name=f"{name}.result", attributes=attributes)
