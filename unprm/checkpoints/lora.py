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
    """Raises `ModelInvalid` if the adapter in a directory, if there is one, repeats layers of its base, or chooses
    layers by regular expressions: one alone can keep the process busy for ever, and nothing could stop it."""
    try:
        config = json.loads((directory / CONFIG).read_text("utf-8"))
    except (OSError, ValueError):
        return
    for field in config if isinstance(config, dict) else ():
        if _NAMING.search(field) and not all(map(_NAME.fullmatch, _texts(config[field]))):
            raise ModelInvalid(
                f"{directory / CONFIG}: {field} has a pattern, and patterns are not evaluated: list the layers' "
                f"names, or write {ALL_LINEAR}"
            )
    if isinstance(config, dict) and config.get("layer_replication"):
        raise ModelInvalid(
            f"{directory / CONFIG}: layer_replication repeats layers of the base, which is not supported: merge the "
            "adapter with PEFT, and give what that saves"
        )


def base(directory: Path) -> tuple[str, str | None]:
    """The base that an adapter's configuration names, and its revision; raises `ModelInvalid` if it names none."""
    path = directory / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        name, revision = config["base_model_name_or_path"], config.get("revision")
    except (OSError, ValueError, LookupError, TypeError):
        name, revision = None, None
    if not isinstance(name, str) or not isinstance(revision, str | None):
        raise ModelInvalid(
            f"{path} has no base_model_name_or_path: give the base with --model, and --adapter and --family"
        )
    return name, revision or None


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(part)
