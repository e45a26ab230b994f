"""When a call over HTTP is made again."""

import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_WAIT = 0.25
"""Seconds before the second attempt, half as many more or less; doubled for each further one, up to `LONGEST_WAIT`."""
LONGEST_WAIT = 15.0


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of an answer's header of this name, or until the date that it is."""
    value = headers.get("retry-after", "")
    if value.isdecimal():
        return seconds if math.isfinite(seconds := float(value)) else None
    try:
        return max(0.0, (parsedate_to_datetime(value).replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds())
    except ValueError:
        return None


class Attempts:
    """At most `maximum` attempts of one call, within `seconds` from now. `now`: in seconds; `jitter`: in [0, 1)."""

    def __init__(
        self,
        maximum: int,
        seconds: float = math.inf,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._maximum, self._now, self._jitter = maximum, now, jitter
        self.seconds, self._until = seconds, now() + seconds
        self.failed = 0

    @property
    def left(self) -> float:
        return self._until - self._now()

    def pause(self, error: Exception, *, again: bool, retry_after: float | None = None) -> float:
        """Seconds before the next attempt. Raises the error if it is not to be made `again`, or none is left.
        `retry_after`: what the server asks for."""
        self.failed += 1
        # not before the server said, and not all clients at the same moment
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (self.failed - 1)) * (0.5 + self._jitter()) + (retry_after or 0.0)
        if not again or self.failed >= self._maximum or wait >= self.left:
            raise error
        return wait
