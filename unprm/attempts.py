"""Reading texts that strangers wrote: an error of a reader concerns the text that caused it, never the others."""

import logging
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

from unprm.errors import UnprmError

T = TypeVar("T")
logger = logging.getLogger(__name__)


class _Failures:
    """The number of failures since the start. Thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.count += 1


FAILURES = _Failures()
"""Of this process."""


def attempt(read: Callable[[], T], otherwise: T) -> T:
    """The result of reading a text; `otherwise` if the reader fails, which is counted and logged: the error's type and
    line, since its message may repeat the text. An `UnprmError` passes."""
    try:
        return read()
    except UnprmError:
        raise
    except Exception as error:
        FAILURES.add()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        logger.error(
            "a candidate could not be read: %s in %s, line %s of %s",
            type(error).__name__,
            frame.name,
            frame.lineno,
            frame.filename,
        )
        return otherwise
