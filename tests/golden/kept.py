"""Files that say what must not change: how they are written, read, and held against what the code makes today."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "kept"
LINES = 60
"""Lines of a difference that are shown."""
WIDTH = 200
"""Characters of a line, where JSON can be broken, and those of a longer one that a difference shows."""
_LONG_NUMBER = re.compile(r"-?\b\d+\.\d{11,}(?:e[-+]\d+)?\b")

Maker = Callable[[Path], Mapping[str, str]]
"""Makes texts by the names of their files, those that end with .gz to be compressed. It is given an empty directory."""


def write(name: str, made: Mapping[str, str], place: Path = KEPT) -> None:
    """Writes the files of a golden, and removes those that it no longer has."""
    for file in sorted({*read(name, place)} - {*made}):
        (place / name / file).unlink()
    for file, text in made.items():
        path = place / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read(name: str, place: Path = KEPT) -> dict[str, str]:
    """The texts of a golden by the names of their files."""
    paths = sorted(path for path in (place / name).rglob("*") if path.is_file())
    return {path.relative_to(place / name).as_posix(): _text(path) for path in paths}


def difference(name: str, made: Mapping[str, str], place: Path = KEPT) -> str:
    """What is made otherwise than it is kept, as a diff cut after `LINES` lines; empty if nothing is."""
    kept = read(name, place)
    lines = [line for file in sorted(kept | made) for line in _diff(f"{name}/{file}", kept.get(file), made.get(file))]
    return "\n".join([*lines[:LINES], *([f"… and {len(lines) - LINES} lines"] if len(lines) > LINES else [])])


def pretty(value: Any, indent: str = "") -> str:
    """A value as JSON with its fields in their order: on one line if it fits, else a line for each of its parts."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    deeper = f"{indent} "
    if isinstance(value, list):
        first, last, parts = "[", "]", [pretty(each, deeper) for each in value]
    else:
        first, last = "{", "}"
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {pretty(each, deeper)}" for name, each in value.items()]
    return "\n".join([first, *(f"{deeper}{part}," for part in parts[:-1]), f"{deeper}{parts[-1]}", f"{indent}{last}"])


def rounded(text: str) -> str:
    """The text with its numbers in twelve digits: processors differ beyond."""
    return _LONG_NUMBER.sub(lambda number: repr(float(f"{float(number[0]):.12g}")), text)


def _diff(file: str, kept: str | None, made: str | None) -> Iterator[str]:
    if made is None or kept is None:
        yield f"{file}: {'no longer made' if made is None else 'made, and not kept'}"
    elif kept != made:
        lines = kept.split("\n")
        rows = list(unified_diff(lines, made.split("\n"), f"kept/{file}", f"made/{file}", lineterm="", n=1))
        removed, added = ([row for row in rows[2:] if row.startswith(sign)] for sign in "-+")
        places = {row: _place(*pair) for pair in zip(removed, added, strict=False) for row in pair}
        for row in rows:
            hunk = re.match(r"@@ -(\d+)", row)
            yield _cut(row, places.get(row, 0)) if hunk is None else f"{row} {_title(lines[: int(hunk[1])])}".rstrip()


def _place(removed: str, added: str) -> int:
    """Where two rows begin to differ, after their signs."""
    pairs = enumerate(zip(removed[1:], added[1:], strict=False), 1)
    return next((place for place, (one, other) in pairs if one != other), min(len(removed), len(added)))


def _cut(row: str, place: int) -> str:
    """A row of a diff; of a long one what stands about this place."""
    begin = max(1, min(place - WIDTH // 2, len(row) - WIDTH))
    end = begin + WIDTH
    return f"{row[:1]}{'…' * (begin > 1)}{row[begin:end]}{'…' * (end < len(row))}"


def _title(lines: Sequence[str]) -> str:
    """The last line that begins as a title does."""
    return next((line.removeprefix("# ") for line in reversed(lines) if line.startswith("# ")), "")


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
