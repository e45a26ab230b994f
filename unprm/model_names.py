"""What models are called by those who may not know where they lie."""

import os
from pathlib import Path


def public_name(model: str) -> str:
    """A hub name as it is; of a directory the last part of its path, for the rest is the operator's alone."""
    local = model.startswith((".", "/", "~")) or Path(model).is_dir()
    # by the path as it was given: where a link leads is the operator's as well
    return os.path.basename(os.path.abspath(Path(model).expanduser())) if local else model
