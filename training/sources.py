"""Where the pipeline's input comes from: JSON lines, plain or compressed, and data sets of the hub."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from unprm.errors import RecordInvalid


def from_file(path: Path) -> Iterator[tuple[int, object]]:
    """The JSON values of a file, `.gz` or plain, with the numbers of their lines; blank lines are left out.

    Raises `RecordInvalid` for a line that is no JSON.
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
    """The rows of a data set of the hub, numbered from 1; raises `RecordInvalid` if there is none of that name."""
    import datasets

    try:
        yield from enumerate(datasets.load_dataset(name, split=split), 1)
    except (FileNotFoundError, ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        reason = str(error).partition("\n")[0]
        raise RecordInvalid(name, 0, f"neither a file here nor a data set of the hub: {reason}") from error


def reason(error: ValueError) -> str:
    """What is wrong with a record, in one line, without its text."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'record'}: {first['msg']}"
