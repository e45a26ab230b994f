"""What models are called by those who may not know where they lie."""

from pathlib import Path


def public_name(model: str) -> str:
    """A hub name as it is; of a directory the last part of its path, for the rest is the operator's alone."""
    local = model.startswith((".", "/", "~")) or Path(model).is_dir()
    return Path(model).resolve().name if local else model
