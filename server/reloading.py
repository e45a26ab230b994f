"""Files that are read again when they change."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)


class Reloading:
    """Calls `load` now, and at each `refresh` that finds the files changed. If a new version can't be used, which
    `OSError` and `ValueError` say, that is logged and the old one stays. `noun`: what the log calls the contents;
    `stale`: whether an old version stayed."""

    def __init__(self, noun: str, load: Callable[[], None], *files: Path) -> None:
        self.noun, self.stale = noun, False
        self._load, self._files = load, files
        self._seen = self._signature()
        load()

    def refresh(self) -> None:
        """Reads the files again if they have changed."""
        if (seen := self._signature()) == self._seen:
            return
        self._seen, self.stale = seen, True
        try:
            self._load()
        except (OSError, ValueError) as error:
            logger.error("kept the old %s: the new version can't be used (%s)", self.noun, error)
        else:
            self.stale = False
            logger.info("reloaded the %s", self.noun)

    def _signature(self) -> list[tuple[int, int, int]] | None:
        """A value that differs between versions of the files; None while one of them is missing."""
        try:
            return [(stat.st_ctime_ns, stat.st_ino, stat.st_size) for stat in map(os.stat, self._files)]
        except OSError:  # to be renamed into place, perhaps
            return None
