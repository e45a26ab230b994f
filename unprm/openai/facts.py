"""What requests have shown of a server that it does not say of itself, as fields that it refuses."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

FORGOTTEN_AFTER = 600.0
"""Seconds after which a fact is tried anew: servers are replaced, and routers send the next request elsewhere."""
SHOWINGS = 2
"""How often a fact has to be shown in a row: a single failure may have been that of one request."""


class _Shown(NamedTuple):
    value: Any
    times: int
    until: float


class Facts:
    """Facts about a server by their names, known once they were shown `SHOWINGS` times, for `FORGOTTEN_AFTER` seconds
    of `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: dict[str, _Shown] = {}

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The value of a known fact."""
        shown = self._shown.get(name)
        return shown.value if shown and shown.times >= SHOWINGS and self._clock() < shown.until else otherwise

    def show(self, name: str, value: Any = True) -> bool:
        """A request has shown it; True if it is known from now on and was not before."""
        now, before = self._clock(), self._shown.get(name)
        if before is None or now >= before.until:
            before = _Shown(value, 0, now)
        until = now + FORGOTTEN_AFTER if before.times < SHOWINGS else before.until
        self._shown[name] = _Shown(value, before.times + 1, until)
        return before.times + 1 == SHOWINGS

    def contradict(self, name: str) -> None:
        """A request has shown the opposite: what was shown, but is not known, is forgotten."""
        if self.get(name) is None:
            self._shown.pop(name, None)
