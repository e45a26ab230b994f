"""What an operator sees: log lines, metrics for Prometheus, and OpenTelemetry traces. None of them has a caller's text.

Messages of exceptions may contain such text (a parser quotes what it can't read), so of an exception only its type and
the locations in its traceback are logged. A span has what the log has: routes, counts, times, and names.
"""

import json
import logging
import logging.config
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unprm.engines.scheduler import BatchFigures
from unprm.types import Usage
from unprm.wire import VoteOut

from .admission import Context

Attributes = Mapping[str, str | int | float]

_NAME = re.compile(r"[A-Za-z0-9._/:@-]{1,128}")
"""Names and ids that a span may have although a caller, or an upstream, made them up."""
_TRACE_HEADERS = (b"traceparent", b"tracestate")

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CALLER_SECONDS = (1.0, 5.0, 10.0, 20.0, 60.0)
_CALLERS = 256
"""Callers that are counted by name; any further one is among the others."""
_OTHERS = "(others)"
_CALL_SECONDS = (*_SECONDS, 120.0, 300.0, 600.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)

logger = logging.getLogger(__name__)
_tracing = False


def configure_logs(level: str, style: Literal["json", "text"]) -> None:
    """Configures the process's logging, to standard error."""
    formatter = JsonFormatter if style == "json" else TextFormatter
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": formatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            # it logs each request to an upstream, of which a judge gets one per step
            "loggers": {"httpx": {"level": "WARNING"}},
            "root": {"level": level.upper(), "handlers": ["stderr"]},
        }
    )
    logging.captureWarnings(True)


def log_request(method: str, route: str, status: int, seconds: float, context: Context) -> dict[str, str | int | float]:
    """Logs the line of one request; returns its fields. `route` is the template, so neither path nor query string is
    logged."""
    fields: dict[str, str | int | float] = {
        "method": method if method in _METHODS else "other",
        "route": route,
        "status": status,
        **({"code": context.code} if context.code else {}),
        "ms": round(seconds * 1000, 1),
        "request_id": context.request_id,
        **({"caller": context.caller} if context.caller else {}),
        "solutions": context.solutions,
        "tokens": context.usage.tokens,
        "computed_tokens": context.usage.computed_tokens,
    }
    logger.info("request", extra={"fields": fields})
    return fields


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO server.observe: request method=POST …`"""

    def format(self, record: logging.LogRecord) -> str:
        time, message, fields = _parts(record)
        values = (f"{name}={value}" for name, value in fields.items())
        return " ".join([f"{time} {record.levelname} {record.name}: {message}", *values]).rstrip()


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …}` and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        time, message, fields = _parts(record)
        head = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": message}
        return json.dumps(head | fields, ensure_ascii=False)


def describe(error: BaseException) -> str:
    """Types of an exception and its causes, and their traceback locations; no message, no values."""
    frames = traceback.extract_tb(error.__traceback__, limit=-12)
    places = " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    parts = [f"{type(error).__name__} at {places or 'no place known'}"]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        parts.append(describe(cause))
    return " from ".join(parts)


def _parts(record: logging.LogRecord) -> tuple[str, str, dict[str, object]]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = describe(record.exc_info[1])
    # asyncio puts the representation of what failed, including its message, on further lines
    return time, record.getMessage().partition("\n")[0], fields


class Metrics:
    """Counters of one app, in `registry`. Labels have few values: route templates, statuses, codes of errors, names of
    served models, names of keys, strategies, and the outcomes that `unprm.openai.client.Observe` lists."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._requests = counter("unprm_requests", "Requests answered.", ("route", "status", "code"))
        self._seconds = histogram("unprm_request_seconds", "Time to the answer.", ("route",), buckets=_SECONDS)
        model, call, caller = ("model",), ("outcome",), ("caller",)
        self._callers = set[str]()
        self._by_caller = counter("unprm_caller_requests", "Requests for work by the key's name.", ("caller", "code"))
        self._caller_tokens = counter("unprm_caller_tokens", "Tokens that models scored for a caller.", caller)
        self._caller_bytes = counter("unprm_caller_bytes", "Bytes of texts that were read for a caller.", caller)
        self._caller_seconds = histogram(
            "unprm_caller_seconds", "Time to the answer, without the gateway's.", caller, buckets=_CALLER_SECONDS
        )
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

    def worked(self, route: str, caller: str, context: Context, seconds: float) -> None:
        """Counts a request for work with its caller, by the name of the key; those without a name are one caller."""
        if caller not in self._callers:
            if len(self._callers) >= _CALLERS:
                caller = _OTHERS
            self._callers.add(caller)
        self._by_caller.labels(caller, context.code).inc()
        self._caller_tokens.labels(caller).inc(context.usage.tokens)
        self._caller_bytes.labels(caller).inc(context.size)
        if not route.startswith("/v1/"):
            self._caller_seconds.labels(caller).observe(seconds)

    def used(self, model: str, usage: Usage) -> None:
        self._tokens.labels(model).inc(usage.tokens)
        self._computed.labels(model).inc(usage.computed_tokens)
        self._cached.labels(model).inc(usage.cached_tokens)

    def ran(self, model: str, batch: BatchFigures) -> None:
        self._batch_items.labels(model).observe(batch.items)
        self._batch_tokens.labels(model).observe(batch.tokens)
        self._forward.labels(model).observe(batch.seconds)
        self._unread.labels(model).inc(batch.unread)
        for seconds in batch.waits:
            self._waits.labels(model).observe(seconds)

    def called_upstream(self, seconds: float, outcome: str) -> None:
        self._upstream.labels(outcome).observe(seconds)

    def called_judge(self, seconds: float, outcome: str) -> None:
        """Counts a call to the judge. May be called from any thread."""
        self._judge.labels(outcome).observe(seconds)

    def voted(self, vote: VoteOut, context: Context) -> None:
        """Counts a vote, and reports it as `evaluated` does: the score by which it elected, and `tie` or what decided
        it."""
        self._votes.labels(vote.strategy).inc()
        self._ties.labels(vote.strategy).inc(vote.tie)
        evaluated(vote.strategy, "tie" if vote.tie else vote.decided_by, vote.candidates[0].score, context)


class TracingUnavailable(Exception):
    """Traces are configured, but OpenTelemetry is not installed."""


def configure_traces(endpoint: str) -> None:
    """Sends this process's traces and votes to a collector: OTLP over HTTP, `endpoint` without `/v1/traces`. Calls of
    httpx have spans from now on, and pass the trace on."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "http")  # else the old names of attributes
    try:
        import opentelemetry.instrumentation.asgi  # noqa: F401  # which `Traced` needs
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


class Traced:
    """ASGI middleware: a server's span for each request, within its caller's trace; without traces, nothing.

    OpenTelemetry's middleware sees neither the path, query, address and program of a caller, nor the body of the
    answer, at whose end it would end the span before all is known.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app: ASGIApp = app
        if _tracing:
            from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

            self.app = OpenTelemetryMiddleware(_Unveiled(app), exclude_spans=["receive", "send"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _tracing and scope["type"] == "http":
            seen = {name: scope[name] for name in ("type", "method", "scheme", "http_version", "server")}
            traced = [(name, value) for name, value in scope["headers"] if name in _TRACE_HEADERS and value.isascii()]
            scope = {**seen, "headers": traced, "unprm.whole": (scope, send)}
        await self.app(scope, receive, send)


class _Unveiled:
    """What OpenTelemetry's middleware calls: the app, with the whole of what `Traced` got."""

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


def annotate_generation(requested: str, model: str, answer: str, prompt_tokens: int, completion_tokens: int) -> None:
    """Adds a completion to the current span by OpenTelemetry's conventions for generative AI: the models asked for and
    answering, the answer's id, and its tokens."""
    named = {"request.model": requested, "response.model": model, "response.id": answer}
    known = {f"gen_ai.{name}": value for name, value in named.items() if _NAME.fullmatch(value)}
    tokens = {"gen_ai.usage.input_tokens": prompt_tokens, "gen_ai.usage.output_tokens": completion_tokens}
    annotate({"gen_ai.operation.name": "chat", **known, **tokens})


def evaluated(strategy: str, label: str, score: float | None, context: Context) -> None:
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
