"""What `make` installs PyTorch from, with programs in the place of Python and the NVIDIA driver's."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import PATIENCE, ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
PYTHON = '#!/bin/sh\necho "$*" >> calls\ncase "$*" in *urlopen*) exit $ANSWERS;; *--index-url*) exit $INSTALLS;; esac\n'
"""Notes what it was asked; whether PyTorch's index answers, and an installation from there succeeds, variables say."""


def installed(place: Path, *, gpu: bool, answers: bool = True, installs: bool = True) -> tuple[str, list[str]]:
    """What `make` prints and where each installation was from."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, place)
    for program, text in ((".venv/bin/python", PYTHON), ("bin/nvidia-smi", f"#!/bin/sh\nexit {int(not gpu)}\n")):
        (place / program).parent.mkdir(parents=True)
        (place / program).write_text(text, "ascii")
        (place / program).chmod(0o755)
    variables = {"ANSWERS": str(int(not answers)), "INSTALLS": str(int(not installs))}
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    made = subprocess.run(
        ["make", "--no-print-directory", ".venv/serve.installed"],
        cwd=place,
        env=os.environ | variables | {"PATH": path, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    calls = (place / "calls").read_text("utf-8").splitlines()
    assert calls[-1].endswith("--constraint constraints.txt --editable .[serve]")
    return made.stdout, [call.partition("--constraint constraints.txt ")[2] for call in calls if " install " in call]


FROM_PYTORCH = "--no-deps --index-url https://download.pytorch.org/whl/cpu torch"
PACKAGE = "--editable .[serve]"


def test_without_a_gpu_it_is_the_build_for_cpus(tmp_path: Path) -> None:
    said, calls = installed(tmp_path, gpu=False)
    assert calls == [FROM_PYTORCH, PACKAGE]
    assert "No NVIDIA GPU: PyTorch's build for CPUs, from https://download.pytorch.org/whl/cpu\n" in said


def test_with_a_gpu_it_is_the_build_of_the_configured_index(tmp_path: Path) -> None:
    said, calls = installed(tmp_path, gpu=True)
    assert calls == [PACKAGE]
    assert "NVIDIA GPU found: PyTorch with CUDA\n" in said


@pytest.mark.parametrize(("answers", "asked"), [(False, [PACKAGE]), (True, [FROM_PYTORCH, PACKAGE])])
def test_where_pytorchs_index_fails_it_is_the_configured_one(tmp_path: Path, answers: bool, asked: list[str]) -> None:
    said, calls = installed(tmp_path, gpu=False, answers=answers, installs=False)
    assert calls == asked
    assert "https://download.pytorch.org/whl/cpu doesn't answer: PyTorch from pip's own index\n" in said
