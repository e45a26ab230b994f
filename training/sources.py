"""Readers of the pipeline's input: JSON lines, plain or compressed, and data sets on the hub."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from unprm.errors import RecordInvalid


def from_file(path: Path) -> Iterator[tuple[int, object]]:
    """Yields the line number and JSON value of each line of a file, `.gz` or plain; blank lines are skipped.

    Raises `RecordInvalid` for a line that is not JSON.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise RecordInvalid(str(path), number, f"no JSON ({error})") from error


def from_hub(name: str, split: str) -> Iterator[tuple[int, object]]:
    """The rows of a data set on the hub, numbered from 1; raises `RecordInvalid` if it cannot be found or reached."""
    import datasets

    try:
        yield from enumerate(datasets.load_dataset(name, split=split), 1)
    except (FileNotFoundError, ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        reason = str(error).partition("\n")[0]
        raise RecordInvalid(name, 0, f"neither a file here nor a data set of the hub: {reason}") from error


def reason(error: ValueError) -> str:
    """One line that says what is wrong with a record, without quoting it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}"
