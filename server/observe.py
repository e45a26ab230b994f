"""What an operator sees: log lines, and metrics for Prometheus. Neither has a caller's text.

Messages of exceptions may contain such text (a parser quotes what it can't read), so of an exception only its type and
the locations in its traceback are logged.
"""

import json
import logging
import logging.config
import traceback
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from unprm.engines.model_queue import BatchFigures
from unprm.types import Usage
from unprm.wire import Election

from .lease import Lease
from .tracing import report_evaluation

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CALLER_SECONDS = (1.0, 5.0, 10.0, 20.0, 60.0)
_CALLERS = 256
"""Callers that are counted by name; any further one is among the others."""
_OTHERS = "(others)"
_CALL_SECONDS = (*_SECONDS, 120.0, 300.0, 600.0)
_FAILED_CALLS = ("slow", "timed_out", "5xx", "unreachable", "unreadable")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)

logger = logging.getLogger(__name__)


def configure_logs(level: str, style: Literal["json", "text"]) -> None:
    """Configures the process's logging, to standard error."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": LogFormatter, "style": style}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            # one logs each request to an upstream, of which a judge gets one per step, the other its steps at the start
            "loggers": {name: {"level": "WARNING"} for name in ("httpx", "uvicorn.error")},
            "root": {"level": level.upper(), "handlers": ["stderr"]},
        }
    )
    logging.captureWarnings(True)


def log_request(
    method: str, route: str, status: int, seconds: float, lease: Lease, level: int = logging.INFO
) -> dict[str, str | int | float]:
    """Logs the line of one request; returns its fields. `route` is the template, so neither path nor query string is
    logged."""
    fields: dict[str, str | int | float] = {
        "method": method if method in _METHODS else "other",
        "route": route,
        "status": status,
        **({"code": lease.code} if lease.code else {}),
        "ms": round(seconds * 1000, 1),
        "request_id": lease.request_id,
        **({"caller": lease.caller} if lease.caller else {}),
        "solutions": lease.solutions,
        "tokens": lease.usage.tokens,
        "computed_tokens": lease.usage.computed_tokens,
    }
    logger.log(level, "request", extra={"fields": fields})
    return fields


class LogFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO server.observe: request method=POST …`; or as JSON, `{"time": …, "level": …,
    "logger": …, "message": …}` and the record's fields."""

    def __init__(self, style: Literal["json", "text"]) -> None:
        super().__init__()
        self._as_json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = describe(record.exc_info[1])
        # asyncio puts the representation of what failed, including its message, on further lines
        message = record.getMessage().partition("\n")[0]
        if self._as_json:
            head = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": message}
            return json.dumps(head | fields, ensure_ascii=False)
        values = (f"{name}={value}" for name, value in fields.items())
        return " ".join([f"{time} {record.levelname} {record.name}: {message}", *values]).rstrip()


def describe(error: BaseException) -> str:
    """Types of an exception and its causes, and their traceback locations; no message, no values."""
    frames = traceback.extract_tb(error.__traceback__, limit=-12)
    places = " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    parts = [f"{type(error).__name__} at {places or 'no place known'}"]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        parts.append(describe(cause))
    return " from ".join(parts)


class Metrics:
    """Counters of one app, in `registry`. Labels have few values: route templates, statuses, codes of errors, names of
    served models, names of keys and upstreams, strategies, and outcomes of calls."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._requests = counter("unprm_requests", "Requests answered.", ("route", "status", "code"))
        self._seconds = histogram("unprm_request_seconds", "Time to the answer.", ("route",), buckets=_SECONDS)
        model, call, caller = ("model",), ("outcome",), ("caller",)
        self._callers, self._never_failed = dict[str, str](), dict[str, str]()
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
            "unprm_upstream_seconds", "Time of a call to an upstream.", ("upstream", "outcome"), buckets=_CALL_SECONDS
        )
        self._judge = histogram("unprm_judge_seconds", "Time of a call to the judge.", call, buckets=_CALL_SECONDS)
        self._votes = counter("unprm_votes", "Votes taken.", ("strategy",))
        self._ties = counter("unprm_ties", "Votes that ended in a tie.", ("strategy",))

    def count_request(self, route: str, status: int, seconds: float, lease: Lease, *, works: bool, named: bool) -> None:
        """`works`: whether it counts for its caller, by the name of the key, or unless `named` by a number, which is
        logged beside the name; callers without a name are one."""
        self._requests.labels(route, str(status), lease.code).inc()
        self._seconds.labels(route).observe(seconds)
        if not works:
            return
        if (caller := self._callers.get(lease.caller, _OTHERS)) == _OTHERS and len(self._callers) < _CALLERS:
            caller = self._callers[lease.caller] = (
                lease.caller if named or not lease.caller else str(len(self._callers) + 1)
            )
            if caller != lease.caller:
                logger.info("the caller %s has the number %s in /metrics", lease.caller, caller)
        self._by_caller.labels(caller, lease.code).inc()
        self._caller_tokens.labels(caller).inc(lease.usage.tokens)
        self._caller_bytes.labels(caller).inc(lease.size)
        if not route.startswith("/v1/"):
            self._caller_seconds.labels(caller).observe(seconds)

    def count_usage(self, model: str, usage: Usage) -> None:
        self._tokens.labels(model).inc(usage.tokens)
        self._computed.labels(model).inc(usage.computed_tokens)
        self._cached.labels(model).inc(usage.cached_tokens)

    def count_batch(self, model: str, batch: BatchFigures) -> None:
        self._batch_items.labels(model).observe(batch.items)
        self._batch_tokens.labels(model).observe(batch.tokens)
        self._forward.labels(model).observe(batch.seconds)
        self._unread.labels(model).inc(batch.unread)
        for seconds in batch.waits:
            self._waits.labels(model).observe(seconds)

    def expect_upstream(self, name: str, url: str) -> None:
        """Exports the outcomes of its calls before there are any: a rate does not see the first."""
        self._never_failed[name] = url
        for outcome in ("ok", "4xx", "cancelled", *_FAILED_CALLS):
            self._upstream.labels(name, outcome)

    def count_upstream_call(self, name: str, seconds: float, outcome: str) -> None:
        """Logs a failure, too. `outcome`: as in `unprm.openai.client.Observe`; `slow`: of a call that has no byte yet
        and goes on; `timed_out`: of one that was given up before its first."""
        self._upstream.labels(name, outcome).observe(seconds)
        if outcome in _FAILED_CALLS:
            fields = {"upstream": name, "outcome": outcome, "ms": round(seconds * 1000, 1)}
            logger.warning("upstream call", extra={"fields": fields})
            if url := self._never_failed.pop(name, None):
                advice = "does it run, and are --upstream-url and --upstream-key right?"
                logger.warning("first failure of the upstream %s, tried at %s: %s", name, url, advice)

    def count_judge_call(self, seconds: float, outcome: str) -> None:
        """May be called from any thread."""
        self._judge.labels(outcome).observe(seconds)

    def count_vote(self, vote: Election, lease: Lease) -> None:
        """Traces it, too: the score by which it elected, and `tie` or what decided it."""
        self._votes.labels(vote.strategy).inc()
        self._ties.labels(vote.strategy).inc(vote.tie)
        report_evaluation(vote.strategy, "tie" if vote.tie else vote.decided_by, vote.candidates[0].score, lease)
