"""Logging: one line per record and per request, never with a caller's text.

Messages of exceptions may contain such text (a parser quotes what it can't read), so of an exception only its
type and the locations in its traceback are logged.
"""

import json
import logging
import logging.config
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

from ..context import Context

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

logger = logging.getLogger(__name__)


def configure(level: str, style: Literal["json", "text"]) -> None:
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
    """`2026-01-31T12:00:00.000Z INFO server.observe.logs: request method=POST …`"""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}"
        return f"{head} {fields}".rstrip()


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …}` and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        head = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        return json.dumps(head | _fields(record), ensure_ascii=False)


def describe(error: BaseException) -> str:
    """Types of an exception and its causes, and their traceback locations; no message, no values."""
    parts = [f"{type(error).__name__} at {_places(error.__traceback__)}"]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        parts.append(describe(cause))
    return " from ".join(parts)


def _places(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace, limit=-12)
    return " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames) or "no place known"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = describe(record.exc_info[1])
    return fields


def _message(record: logging.LogRecord) -> str:
    # asyncio puts the representation of what failed, including its message, on further lines
    return record.getMessage().partition("\n")[0]


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
