"""A digest that identifies a loaded model: of everything its scores depend on."""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from unprm.formats.family import PrmFormat, Readout

_FILES = ("*.safetensors", "config.json", "adapter_config.json")
_EXAMPLE = ("1 + 1 = ?", ("1 + 1 is 2.", "So it is \\boxed{2}."))


def model_digest(directories: Sequence[Path], format: PrmFormat, readout: Readout, tokenizer: str, dtype: str) -> str:
    """Digest of the weights and settings in the directories of base, adapter and reference model, in this order; of the
    format with its tokenizer (as JSON); of how scores are read; and of the number type that the layers compute with.

    16 hexadecimal digits: the same for the same files wherever they are and whatever the model is called. Engine and
    device don't count, as they differ only by rounding.
    """
    # All bytes of the weights are read: a sample could miss the rows of a token or a head, which may be all that
    # differs. It takes a second per GB and core, and leaves the files in memory for loading the model.
    files = [sorted(path for name in _FILES for path in directory.glob(name)) for directory in directories]
    with ThreadPoolExecutor() as pool:
        found = [
            [[path.name, digest] for path, digest in zip(paths, pool.map(_of_file, paths), strict=True)]
            for paths in files
        ]
    encoded = format.encode(*_EXAMPLE)  # the encoding changes with the format's code
    layout = [format.family, format.input_format, repr(readout), encoded.ids, encoded.positions]
    return _of_text(json.dumps([found, layout, _of_text(tokenizer), dtype]))[:16]


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
