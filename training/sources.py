"""Readers of records: from JSON lines, plain or compressed, and from data sets on the hub.

Every reader raises `RecordInvalid` with the file, the line, the field and what was expected.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import ValidationError

from unprm import validation_messages
from unprm.errors import RecordInvalid

from .schema import ResolvedSolution, SampledQuestion, SelectedSolution, adapter


class Identified(Protocol):
    """A record with an `id`."""

    @property
    def id(self) -> str: ...


T = TypeVar("T")
R = TypeVar("R", bound=Identified)
_MADE_BY: dict[type, str] = {SampledQuestion: "sample", SelectedSolution: "select", ResolvedSolution: "annotate"}


def read(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of a file, `.gz` or plain; blank lines are skipped."""
    return (record for _, record in from_file(path, kind))


def from_file(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    for number, line in lines(path):
        yield number, parse(line, kind, str(path), number)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, `.gz` or plain, that are not blank, with their numbers; without a byte order mark."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordInvalid(str(path), 0, f"not a whole gzip file ({error})") from error


def json_lines(place: Path) -> list[Path]:
    """The file itself, or a directory's `.jsonl` and `.jsonl.gz` files by name. Raises `RecordInvalid` without any."""
    files = sorted(place.glob("*.jsonl*")) if place.is_dir() else [place]
    if not files:
        raise RecordInvalid(str(place), 0, "the directory has no .jsonl or .jsonl.gz file")
    return files


def from_hub(name: str, split: str, kind: type[T]) -> Iterator[tuple[int, T]]:
    """The rows of a data set on the hub, numbered from 1."""
    import datasets

    try:
        rows = datasets.load_dataset(name, split=split)
    except (FileNotFoundError, ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        explanation = str(error).partition("\n")[0]
        raise RecordInvalid(name, 0, f"neither a file here nor a data set of the hub: {explanation}") from error
    for number, row in enumerate(rows, 1):
        yield number, parse(row, kind, name, number)


def parse(row: object, kind: type[T], source: str, number: int) -> T:
    """The record in a row: bytes of JSON, or its value."""
    try:
        return adapter(kind).validate_json(row) if isinstance(row, bytes) else adapter(kind).validate_python(row)
    except ValidationError as error:
        expected = f"; expected a file of `training {_MADE_BY[kind]}`" if kind in _MADE_BY else ""
        raise RecordInvalid(source, number, reason(error) + expected) from error


def by_id(source: str, rows: Iterable[tuple[int, R]]) -> dict[str, R]:
    """The numbered records by their ids, which must be unique."""
    records: dict[str, R] = {}
    for number, record in rows:
        if record.id in records:
            raise RecordInvalid(source, number, f"the id {record.id!r} occurs twice")
        records[record.id] = record
    return records


def reason(error: ValueError) -> str:
    """One line that says what is wrong with a record, without quoting it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return f"not JSON ({first['ctx']['error']})"
    return f"{'.'.join(map(str, first['loc'])) or 'record'}: {validation_messages.message([first])}"
