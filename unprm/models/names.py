"""Public names of models, which don't reveal local paths."""

import os
from pathlib import Path


def public_name(model: str) -> str:
    """A hub name unchanged; for a directory, the last part of its path, since the rest is private to the operator."""
    local = model.startswith((".", "/", "~")) or Path(model).is_dir()
    # links are not resolved: their targets are private as well
    return os.path.basename(os.path.abspath(Path(model).expanduser())) if local else model
