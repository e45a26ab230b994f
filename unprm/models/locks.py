"""One process at a time makes a file or a directory of a cache."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Keeps others, threads and processes, from making what is at `place`; a killed process holds no lock."""
    lock = FileLock(place.with_name(place.name + ".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        logger.info("waiting for another process that makes %s", place)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
