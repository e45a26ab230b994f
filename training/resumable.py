"""Crash-safe record files: JSON lines that are appended and synced, and that a later run continues.

Next to `NAME.jsonl`, `NAME.config.json` holds the configuration with which its records were made. A run with another
configuration is refused, a last line left incomplete by a crash is removed, and two runs cannot write the same file.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic

from unprm.errors import OutputMismatch

from . import sources
from .schema import to_line
from .sources import Identified, R


class ResumableFile(ExitStack, Generic[R]):
    """An open file of records of one type, each with a unique `id`; a context manager.

    Raises `OutputMismatch` if the file was made with another configuration, or is being written by another run.
    """

    def __init__(self, path: Path, kind: type[R], config: Mapping[str, Any]) -> None:
        super().__init__()
        self.path = path
        _check_plain(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # unbuffered: after a failed write nothing may be left in a buffer
        self._file = self.enter_context(path.open("a+b", buffering=0))
        try:
            self._lock()
            # what a crash left of a last line goes
            os.ftruncate(self._file.fileno(), path.read_bytes().rfind(b"\n") + 1)
            configure(path, config)
            self.records = {record.id: record for record in sources.read(path, kind)}
        except BaseException:  # an interrupt, too, must not leave the file locked
            self.close()
            raise

    def append(self, record: R) -> None:
        """Appends a record; once this returns, the record survives a crash.

        Raises `OSError` if the disk is full or fails; earlier records are kept and the file stays usable.
        """
        line = to_line(record).encode()
        end = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), end)
            error.filename = str(self.path)  # a failed write does not say where
            raise
        self.records[record.id] = record

    def has(self, item: Identified, *fields: str) -> bool:
        """Whether the item's record is there. Raises `OutputMismatch` if a record has its id, and one of these fields
        is another."""
        record = self.records.get(item.id)
        if record and any(getattr(record, name) != getattr(item, name) for name in fields):
            raise OutputMismatch(f"{self.path} has another record with the id {item.id!r}; choose another output")
        return record is not None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputMismatch(f"{self.path} is being written by another run") from None


def digest(values: object) -> str:
    """A digest of JSON values: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def beside(path: Path, suffix: str) -> Path:
    """The file that belongs to a record file, plain or `.gz`, and has its name with this suffix."""
    return path.with_name(path.name.removesuffix(".gz")).with_suffix(suffix)


def config_path(path: Path) -> Path:
    return beside(path, ".config.json")


def config_of(path: Path) -> dict[str, Any]:
    """Raises `OutputMismatch` if it is gone."""
    if not (place := config_path(path)).exists():
        raise OutputMismatch(f"{place}, which says how the records of {path.name} were made, is gone")
    config: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return config


def write(path: Path, config: Mapping[str, Any], records: Iterable[object]) -> None:
    """Writes a record file and its configuration; each file is replaced atomically. Raises `OutputMismatch` if the file
    was made with another configuration."""
    configure(path, config)
    write_lines(path, records)


def configure(path: Path, config: Mapping[str, Any]) -> None:
    """Writes the configuration of a new record file. Raises `OutputMismatch` if an old one has another, or none."""
    if not config_path(path).exists() and not (path.exists() and path.stat().st_size):
        replace(config_path(path), json.dumps(config, ensure_ascii=False, indent=2) + "\n")
    # a setting that is not there is one that is off: earlier and later versions have others
    before, now = config_of(path), json.loads(json.dumps(config))
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed:
        told = (f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}" for key in changed)
        raise OutputMismatch(
            f"{path} was made with another configuration; choose another output, or the same settings: "
            + "; ".join(told)
        )


def write_lines(path: Path, records: Iterable[object]) -> None:
    _check_plain(path)
    with replacing(path) as file:
        file.writelines(to_line(record).encode() for record in records)


def replace(path: Path, content: str | bytes) -> None:
    """Replaces a file atomically; text is written as UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_results(output: Path, results: Mapping[str, Any]) -> None:
    """Writes the `results.json` of an evaluation."""
    replace(output / "results.json", json.dumps(results, indent=2) + "\n")


def _check_plain(path: Path) -> None:
    if path.suffix == ".gz":
        raise OutputMismatch(f"{path}: records are written without compression, leave out .gz")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write in its place, which then replaces it atomically; nothing is left of it after an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)  # it may be what fills the disk
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
