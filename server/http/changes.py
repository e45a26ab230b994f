"""Whether files have changed."""

import os
from pathlib import Path

Signature = tuple[tuple[int, int, int], ...]


def signature(*files: Path) -> Signature:
    """A value that differs between versions of files. Raises `OSError`."""
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in map(os.stat, files))
