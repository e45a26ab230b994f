"""What an adapter's configuration says, before PEFT reads it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unprm.errors import ModelInvalid

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
ALL_LINEAR = "all-linear"
"""PEFT's word for all linear layers but the output."""
_NAMING = re.compile(r"modules|pattern|parameters")
"""In the names of the fields in which PEFT takes texts for layers' names or, most of them, for regular expressions."""
_NAME = re.compile(r"\^?[\w.-]+")
"""A layer's name, or its end; one in full may begin with `^`."""


def check(directory: Path) -> None:
    """Raises `ModelInvalid` if a directory has no adapter, or one that `refuse_unreadable` refuses."""
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise ModelInvalid(f"{directory} has no {name}")
    refuse_unreadable(directory)


def refuse_unreadable(directory: Path) -> None:
    """Raises `ModelInvalid` for an adapter that repeats layers or chooses them by regular expressions, which may never
    end."""
    config = _config(directory)
    for field, value in config.items():
        if _NAMING.search(field) and not all(map(_NAME.fullmatch, _texts(value))):
            raise ModelInvalid(
                f"{directory / CONFIG}: {field} has a pattern, and patterns are not evaluated: list the layers' "
                f"names, or write {ALL_LINEAR}"
            )
    if config.get("layer_replication"):
        raise ModelInvalid(
            f"{directory / CONFIG}: layer_replication repeats layers of the base, which is not supported: merge the "
            "adapter with PEFT, and give what that saves"
        )


def base(directory: Path) -> tuple[str, str | None]:
    """The base that an adapter's configuration names, and its revision; raises `ModelInvalid` if it names none."""
    config = _config(directory)
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(name, str) or not isinstance(revision, str | None):
        raise ModelInvalid(
            f"{directory / CONFIG} has no base_model_name_or_path: give the base with --model, and --adapter and "
            "--family"
        )
    return name, revision or None


def _config(directory: Path) -> dict[str, Any]:
    try:
        config = json.loads((directory / CONFIG).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(part)
