"""What fails of a call of OpenAI's API.

    APIError
    ├── APIConnectionError   no answer: the server can't be reached, or the connection broke
    ├── APIStatusError       an answer with a status other than 200, or an error inside a 200 that has its own
    └── APIResponseError     an answer that is not JSON, not of the API, or too large

An error's text never repeats what was sent or answered, so it may be logged.
"""

import re
from dataclasses import dataclass
from typing import Any, Self

from pydantic_core import from_json

_MAX_MESSAGE = 500
"""Maximum characters of a server's error message."""
FIELD_REFUSALS = {400, 422}
"""Statuses for a request with a field that the server does not know."""
_RETRYABLE = {408, 409, 425, 429, 500, 502, 503, 504}
_WORDS = ("message", "detail", "msg", "error")
"""Where servers put the words of an error: OpenAI in `error.message`, SGLang in `message`, FastAPI in `detail`, also a
list with a `msg` and a place for each field."""


class APIError(Exception):
    """Base of the client's errors. `attempts`: how many were made; `retry_after`: seconds, if the server sent them."""

    attempts = 1
    retry_after: float | None = None
    retryable = False
    """Whether another attempt may succeed."""


class APIConnectionError(APIError):
    """No answer; `reason` is the kind of failure, the name of one of httpx's errors."""

    retryable = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ErrorFields:
    """A server's error in the fields of OpenAI's API, read in any server's form; `status`: in an answer with status
    200 the status that the error has itself.

    The words may repeat what was sent and are for the caller alone.
    """

    message: str | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    status: int | None = None

    @classmethod
    def read(cls, answer: Any) -> Self:
        """Reads an answer: a text, or JSON."""
        first = answer[0] if isinstance(answer, list) and answer else answer
        outer = first if isinstance(first, dict) else {}
        inner = error if isinstance(error := outer.get("error"), dict) else outer

        def text(name: str) -> str | None:
            return value[:_MAX_MESSAGE] if isinstance(value := inner.get(name), str) and value else None

        statuses = [
            int(value) for name in ("status", "code") if re.fullmatch("[45]\\d\\d", value := str(inner.get(name)))
        ]
        return cls(_words(answer), text("code"), text("type"), text("param"), next(iter(statuses), None))

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Reads a body: JSON, or a text that is no page."""
        try:
            return cls.read(from_json(content))
        except ValueError:
            text = content.decode(errors="replace").strip()
            return cls.read(None if text.startswith("<") else text)


class APIStatusError(APIError):
    """A status other than 200, and what the server says of it; `url`: what was asked, without its query, None for an
    error inside a 200."""

    def __init__(self, url: str | None, status: int, retry_after: float | None, fields: ErrorFields) -> None:
        super().__init__(f"{url} answered {status}" if url else f"an error inside a 200: {status}")
        self.url, self.status, self.retry_after, self.fields = url, status, retry_after, fields
        self.retryable = status in _RETRYABLE

    @property
    def message(self) -> str | None:
        """The server's words, cut, as they are handed on."""
        return self.fields.message and self.fields.message[:_MAX_MESSAGE]

    def refuses(self, field: str) -> bool:
        """Whether the server refuses a request and names this field."""
        named = f"{self.fields.param} {self.fields.message}"
        return self.status in FIELD_REFUSALS and re.search(rf"\b{field}\b", named) is not None


class APIResponseError(APIError):
    """An answer with status 200 that can't be read; `message`: the server's own words, as in `ErrorFields`."""

    def __init__(self, problem: str, message: str | None = None) -> None:
        super().__init__(problem)
        self.message = message


def error_inside(answer: Any) -> APIError | None:
    """The error that an answer with status 200 is; None for other answers."""
    if not (isinstance(answer, dict) and (answer.get("error") or answer.get("object") == "error")):
        return None
    fields = ErrorFields.read(answer)
    if fields.status is None:
        return APIResponseError("an error", (fields.message or "without a reason")[:_MAX_MESSAGE])
    return APIStatusError(None, fields.status, None, fields)


def _words(value: Any) -> str | None:
    """The words of an error, with the places that a list of errors names."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, value))) or None
    if not isinstance(value, dict):
        return " ".join(value.split()) or None if isinstance(value, str) else None
    words = next(filter(None, (_words(value.get(name)) for name in _WORDS)), None)
    place = ".".join(map(str, loc)) if isinstance(loc := value.get("loc"), list) else None
    return ": ".join(filter(None, (place, words))) or None
