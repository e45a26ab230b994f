"""The client's own wheel: small, and all that a program without a model needs."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.server.harness import Running
from tests.support import ROOT

VOTE = """
import json, sys
from unprm_client import Client
import unprm, unprm_client, unprm_client.search
with Client(sys.argv[1]) as client:
    vote = client.vote("wrf", "How many?", [r"\\boxed{3}", r"\\boxed{3}"])
heavy = {"torch", "transformers", "fastapi", "typer", "unprm.votes"} & set(sys.modules)
print(json.dumps([vote.answer, sorted(heavy), unprm.__file__, unprm_client.__file__]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", place, ROOT / "clients"], check=True)
    (built,) = place.glob("unprm_client-*.whl")
    return built


def test_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 100_000
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert wheel.name == f"unprm_client-{version}-py3-none-any.whl"


def test_votes_by_itself(wheel: Path, server: Running, tmp_path: Path) -> None:
    """With what it contains, and without torch or a web framework."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    command = [sys.executable, "-c", VOTE, server.url]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True, cwd=tmp_path)
    answer, heavy, *files = json.loads(done.stdout)
    assert (answer, heavy) == ("3", [])
    assert all(file.startswith(str(tmp_path)) for file in files)


def test_the_terminal_says_what_it_needs(wheel: Path, tmp_path: Path) -> None:
    """In its last line, where the client was installed alone."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    alone = "import runpy, sys; sys.modules['typer'] = None; runpy.run_module('unprm_client', run_name='__main__')"
    command = [sys.executable, "-c", alone]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "needs typer and rich: pip install typer rich" in line
    assert "`terminal` of unprm-client" in line


def test_asks_for_what_the_whole_package_asks(wheel: Path) -> None:
    """Both carry the same modules: their versions of httpx and pydantic have to fit."""
    client = tomllib.loads((ROOT / "clients" / "pyproject.toml").read_text("utf-8"))["project"]
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = whole["optional-dependencies"]["client"]
    assert set(client["dependencies"]) <= {*whole["dependencies"], *extra}
    assert set(client["optional-dependencies"]["terminal"]) <= set(extra)
