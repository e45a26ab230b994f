"""Faster imports of many modules."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses garbage collection during imports and exempts the modules afterwards: they are long-lived, and it would
    scan them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
