"""What fails of a call of OpenAI's API.

    APIError
    ├── APIConnectionError   no answer: the server can't be reached, or the connection broke
    ├── APIStatusError       an answer with a status other than 200
    └── APIResponseError     an answer that is not JSON, or too large

An error's text never repeats what was sent or answered, so it may be logged.
"""

import re
from typing import Any

from pydantic_core import from_json

_MAX_MESSAGE = 500
"""Maximum characters of a server's error message."""
FIELD_REFUSALS = {400, 422}
"""Statuses for a request with a field that the server does not know."""
_RETRYABLE = {408, 409, 425, 429, 500, 502, 503, 504}


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


class APIStatusError(APIError):
    """A status other than 200.

    `message`: the server's own words, if any; they may repeat what was
    sent and are for the caller alone; so may `content`, the answer's body, or its beginning.
    """

    def __init__(self, url: str, status: int, retry_after: float | None, content: bytes) -> None:
        super().__init__(f"{url} answered {status}")
        self.status, self.retry_after, self.content = status, retry_after, content
        self.message = _message(content)
        self.retryable = status in _RETRYABLE

    def refuses(self, field: str) -> bool:
        """Whether the server refuses a request and names this field."""
        return self.status in FIELD_REFUSALS and re.search(rf"\b{field}\b", self.message or "") is not None


class APIResponseError(APIError):
    """An answer with status 200 that can't be read; `message`: the server's own words, as in `APIStatusError`."""

    def __init__(self, problem: str, message: str | None = None) -> None:
        super().__init__(problem)
        self.message = message


def _message(content: bytes) -> str | None:
    try:
        return error_message(from_json(content))
    except ValueError:
        return None


def error_message(answer: Any) -> str | None:
    """The message of an answer that is an error, in OpenAI's form or as a text; None for other answers."""
    try:
        error = answer["error"]
        return str(error if isinstance(error, str) else error["message"])[:_MAX_MESSAGE]
    except (KeyError, TypeError):
        return None
