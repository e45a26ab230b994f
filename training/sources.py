"""Readers of records: from JSON lines and JSON arrays, plain or compressed, and from data sets on the hub.

Every reader raises `RecordInvalid` with the file, the line, the field and what was expected.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
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
ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
"""Of the files that are read in a directory and those below it, in the order of their paths."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_MADE_BY: dict[type, str] = {SampledQuestion: "sample", SelectedSolution: "select", ResolvedSolution: "annotate"}


def read(source: str | Path, kind: type[T], split: str = "train") -> Iterator[T]:
    return (record for _, record in numbered(source, kind, split))


def numbered(source: str | Path, kind: type[T], split: str = "train") -> Iterator[tuple[int, T]]:
    """The records in the rows of `rows_of`, with their numbers."""
    return ((number, parse(row, kind, name, number)) for name, number, row in rows_of(source, split))


def rows_of(source: str | Path, split: str = "train") -> Iterator[tuple[str, int, object]]:
    """Each row with the name of its file and its number: of a file, of the files of a directory, or of the split of the
    hub's data set of that name. Raises `RecordInvalid` if there is none."""
    place = Path(source)
    if place.exists():
        yield from ((str(path), *row) for path in files(place) for row in rows(path))
    elif not _HUB_NAME.fullmatch(str(source)) or place.name.endswith(ENDINGS):
        raise RecordInvalid(str(source), 0, "there is no such file or directory")
    else:
        yield from ((str(source), *row) for row in from_hub(str(source), split))


def files(place: Path) -> list[Path]:
    """The file itself, or the files that end with `ENDINGS` in a directory and below it, by path. Raises
    `RecordInvalid` without any."""
    found = sorted(path for path in place.rglob("*") if path.name.endswith(ENDINGS)) if place.is_dir() else [place]
    if not found:
        raise RecordInvalid(str(place), 0, f"the directory has no file that ends with {', '.join(ENDINGS)}")
    return found


def rows(path: Path) -> Iterator[tuple[int, object]]:
    """The rows of a file, `.gz` or plain: lines of JSON, as bytes with their numbers, without blank ones; or the values
    of a JSON array, counted from 1."""
    numbered = _lines(path)
    number, first = next(numbered, (0, b""))
    if not first.lstrip().startswith(b"["):
        yield from chain([(number, first)] if number else [], numbered)
        return
    content = first + b"".join(line for _, line in numbered)
    try:
        yield from enumerate(adapter(list[object]).validate_json(content), 1)
    except ValidationError:
        yield 1, content  # a row whose error is that of the file


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; without a byte order mark."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordInvalid(str(path), 0, f"not a whole gzip file ({error})") from error


def from_hub(name: str, split: str) -> Iterator[tuple[int, object]]:
    import datasets

    try:
        yield from enumerate(datasets.load_dataset(name, split=split), 1)
    except (FileNotFoundError, ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        explanation = str(error).partition("\n")[0]
        raise RecordInvalid(name, 0, f"neither a file here nor a data set of the hub: {explanation}") from error


def value(row: object, kind: type[T]) -> T:
    """The value in a row: bytes of JSON, or a value itself. Raises `ValidationError`."""
    return adapter(kind).validate_json(row) if isinstance(row, bytes) else adapter(kind).validate_python(row)


def parse(row: object, kind: type[T], source: str, number: int) -> T:
    try:
        return value(row, kind)
    except ValidationError as error:
        expected = f"; expected a file of `training {_MADE_BY[kind]}`" if kind in _MADE_BY else ""
        raise RecordInvalid(source, number, reason(error) + expected) from error


def unique(source: str | Path, rows: Iterable[tuple[int, R]]) -> list[R]:
    """The numbered records, whose ids must be unique."""
    records: dict[str, R] = {}
    for number, record in rows:
        if records.setdefault(record.id, record) is not record:
            raise RecordInvalid(str(source), number, f"the id {record.id!r} occurs twice")
    return [*records.values()]


def reason(error: ValueError) -> str:
    """One line that says what is wrong with a record, without quoting it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return f"not JSON ({first['ctx']['error']})"
    return f"{'.'.join(map(str, first['loc'])) or 'record'}: {validation_messages.message([first])}"
