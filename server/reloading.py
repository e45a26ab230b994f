"""Files that are read again when they change."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)


class Reloading:
    """Calls `load` now, and at each `refresh` that finds the files changed. If a new version can't be used, which
    `OSError` and `ValueError` say, that is logged and the old one stays. `noun`: what the log calls the contents."""

    def __init__(self, noun: str, load: Callable[[], None], *files: Path) -> None:
        self._noun, self._load, self._files = noun, load, files
        self._seen = self._signature()
        load()

    def refresh(self) -> None:
        """Reads the files again if they have changed."""
        if (seen := self._signature()) == self._seen:
            return
        self._seen = seen
        try:
            self._load()
        except (OSError, ValueError) as error:
            logger.error("kept the old %s: the new version can't be used (%s)", self._noun, error)
        else:
            logger.info("reloaded the %s", self._noun)

    def _signature(self) -> list[tuple[int, int, int]] | None:
        """A value that differs between versions of the files; None while one of them is missing."""
        try:
            return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in map(os.stat, self._files)]
        except OSError:  # to be renamed into place, perhaps
            return None
