"""Files and directories that are made once and kept, by one thread of one process at a time."""

import logging
import shutil
from collections.abc import Callable, Iterator
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


def fill(place: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` make a directory's files in an empty one, unless `place` has files: it has all of them or none. Who
    fills the same directory meanwhile waits, and, if the first is killed or fails, begins anew."""
    with alone(place):
        if not place.is_dir() or not any(place.iterdir()):
            partial = place.with_name(f"{place.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write(partial)
            partial.rename(place)  # atomic, also onto an empty directory
