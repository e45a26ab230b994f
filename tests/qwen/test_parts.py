"""A base's file from the parts that packages carry."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from research.bases import BASES
from tests.qwen.parts import PACKAGES, join

PARTS = (b"GGUF, and so ", b"on to the ", b"end")
WHOLE = b"".join(PARTS)
NAMES = [f"a-base-part{number}==1.0" for number in range(1, 4)]


@pytest.fixture
def shelf(tmp_path: Path) -> list[str]:
    """pip's options for a directory of wheels, each with a part, that fail where they are installed."""
    for number, part in enumerate(PARTS, 1):
        package = f"a_base_part{number}"
        with ZipFile(tmp_path / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{package}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"{package}/data/part{number:02}.bin", part)
            about, more = f"{package}-1.0.dist-info", "Requires-Dist: what-nobody-has\n"
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n{more}")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    return ["--no-index", "--find-links", str(tmp_path)]


def test_the_parts_are_joined_in_order(shelf: list[str], tmp_path: Path) -> None:
    join(NAMES, tmp_path / "whole.gguf", len(WHOLE), shelf)
    assert (tmp_path / "whole.gguf").read_bytes() == WHOLE
    assert not list(tmp_path.glob("*.partial"))


def test_nothing_is_put_there_that_is_too_long_or_not_whole(shelf: list[str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"part3==1\.0 makes the file too long"):
        join(NAMES, tmp_path / "whole.gguf", len(WHOLE) - 1, shelf)
    with pytest.raises(subprocess.CalledProcessError):
        join([*NAMES, "another==1.0"], tmp_path / "whole.gguf", len(WHOLE), shelf)
    assert not (tmp_path / "whole.gguf").exists()


def test_each_base_has_its_packages() -> None:
    assert PACKAGES.keys() == BASES.keys()
