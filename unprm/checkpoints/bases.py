"""Language models that are known by a name of ours: `--base`, `--model` and samplers take it where a hub name goes.

Each is one GGUF file of the hub, which its SHA-256 identifies. On a machine without the hub it may be put into the
cache by hand. PyTorch gets it converted to a directory like those of the hub, once.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import cached_assets_path, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from unprm.errors import ModelInvalid


@dataclass(frozen=True, slots=True)
class NamedBase:
    """A model's file: its place on the hub, its `size` in bytes, and its digest."""

    name: str
    repository: str
    revision: str
    file: str
    size: int
    sha256: str

    @property
    def exact_name(self) -> str:
        """The file in Markdown, for the cards of what was trained on it."""
        return f"`{self.file}` of `{self.repository}`, SHA-256 `{self.sha256}`"


BASES = {
    base.name: base
    for base in (
        NamedBase(
            "qwen2.5-coder-0.5b-instruct",
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "ebb2015119c907b064c512bf053e945850b5875f",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
        NamedBase(
            "qwen2.5-coder-1.5b-instruct",
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
    )
}


def hub_name(name: str) -> str:
    """The name on the hub of a base's repository; any other name unchanged."""
    return BASES[name].repository if name in BASES else name


def file(base: NamedBase, cache: Path | None = None, **options: Any) -> Path:
    """The base's GGUF file: that of `by_hand`, or else the hub's, in its own cache. `options`: more of
    `hf_hub_download`.

    Raises `ModelInvalid` if it can't be had, or is another file; it says what to do.
    """
    place = by_hand(base, cache)
    if place.exists():
        found = place
    else:
        try:
            found = Path(hf_hub_download(base.repository, base.file, revision=base.revision, **options))
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelInvalid(
                f"{base.name} can't be fetched from the hub ({reason}). Download {base.file} of {base.repository}, "
                f"revision {base.revision}, elsewhere and put it at {place}"
            ) from error
    if fault := _fault(base, found):
        raise ModelInvalid(f"{found} is not {base.name}: {fault}. Delete it, and it is fetched again")
    return found


def by_hand(base: NamedBase, cache: Path | None = None) -> Path:
    """Where the base's file is looked for before it is asked of the hub: in `cache`, a directory (default: among
    huggingface_hub's assets)."""
    return (cache or _cache()) / f"{base.sha256}.gguf"


def directory(base: NamedBase, cache: Path | None = None) -> Path:
    """The base as transformers loads it, with weights in bfloat16, in the cache of `by_hand`; it is converted if it
    was not before.

    Raises `ModelInvalid` as `file` does, and if what converts it is not installed.
    """
    place = converted(base, cache)
    if not place.exists():
        from unprm.checkpoints import gguf  # PyTorch, which llama.cpp does not need

        gguf.convert(file(base, cache), place)
    return place


def converted(base: NamedBase, cache: Path | None = None) -> Path:
    """Where `directory` keeps the base, whether or not it is there yet."""
    return (cache or _cache()) / base.sha256


def _cache() -> Path:
    return cached_assets_path("unprm", "bases")


def _fault(base: NamedBase, path: Path) -> str | None:
    """What is wrong with a file, None if it is the base's."""
    if (size := path.stat().st_size) != base.size:
        return f"it has {size:,} bytes instead of {base.size:,}"
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    return None if found == base.sha256 else f"its SHA-256 is {found} instead of {base.sha256}"
