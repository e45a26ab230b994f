"""The package as it is installed, with the packages of one extra and no others."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.clients.programs import environment
from tests.support import ROOT


@dataclass(frozen=True)
class Environment:
    """Its Python, and the script of the command."""

    python: Path
    script: Path

    @property
    def variables(self) -> dict[str, str]:
        """Of a shell whose commands are those of this environment."""
        return {"PATH": f"{self.script.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""}

    def run(self, *words: str, status: int = 0, sent: str = "") -> str:
        """What Python prints, or writes to stderr if it is to fail."""
        done = subprocess.run(
            [self.python, *words],
            env=environment(PYTHONPATH=""),
            input=sent,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    def unprm(self, *words: str, status: int = 0, sent: str = "") -> str:
        """The same of the command."""
        return self.run(str(self.script), *words, status=status, sent=sent)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def package(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel is installed, without what it needs."""
    place = tmp_path_factory.mktemp("package")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", place, wheel], check=True)
    return place


@pytest.fixture(scope="session")
def environment_with(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Makes an environment of the package with an extra: it and what the extra brings are linked to where they are, so
    nothing is downloaded."""

    def make(extra: str) -> Environment:
        place = tmp_path_factory.mktemp(extra or "base")
        venv.create(place, symlinks=True)
        (packages,) = place.glob("lib/*/site-packages")
        (found,) = package.glob("*.dist-info")
        installed = metadata.PathDistribution(found)
        for distribution in (installed, *_brought_by(installed, extra, {}).values()):
            for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
                if not (packages / name).exists():
                    (packages / name).symlink_to(str(distribution.locate_file(name)))
        made = Environment(place / "bin" / "python", place / "bin" / "unprm")
        _, script = (package / "bin" / "unprm").read_text("utf-8").split("\n", 1)
        made.script.write_text(f"#!{made.python}\n{script}", "utf-8")
        made.script.chmod(0o755)
        return made

    return make


def _brought_by(
    root: metadata.Distribution, extra: str, found: dict[tuple[str, str], metadata.Distribution]
) -> dict[tuple[str, str], metadata.Distribution]:
    """The distributions that one needs for an extra, by their names and extras; those `found` before are kept."""
    for needed in map(Requirement, root.requires or []):
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        for more in {"", *needed.extras}:
            if needed.name == "unprm":
                _brought_by(root, more, found)
            elif (needed.name, more) not in found:
                found[needed.name, more] = metadata.distribution(needed.name)
                _brought_by(found[needed.name, more], more, found)
    return found
