"""Record files as plain JSON objects, to check and to make up what stages write."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from training.resumable import config_path


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write(path: Path, config: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file and its configuration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    config_path(path).write_text(json.dumps(config), "utf-8")
