"""Imports of many modules, in less time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Imports within it go on without the garbage collector: it would look again and again through modules that are
    there to stay, and leaves them alone afterwards, too."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
