"""An option of a model is one field, found wherever options are given or listed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

FIELD = '    flavour: str | None = Field(default=None, description="What it tastes of.")\n'
ASK = """
from server.__main__ import app
from server.app import create_app
from server.settings import Settings
from typer.testing import CliRunner
from tests.fake_engine import FakeEngine
from unprm.models.options import ModelSpec

for given in ({}, {"flavour": "salt"}):  # the environment's, and that of the command line
    (request,) = Settings.read({"model": ["m"]} | given).models().values()
    print(request.flavour)
print(ModelSpec(model="m", flavour="mint").flavour)
document = create_app(Settings(admin_key="k"), FakeEngine(), open_model=FakeEngine).openapi()
(body,) = document["paths"]["/admin/models"]["post"]["requestBody"]["content"].values()
print(document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]["properties"]["flavour"])
shown = CliRunner().invoke(app, ["serve", "--help"])
print(shown.output)
print(shown.exit_code)
"""


def test_one_new_field_is_an_option_a_variable_and_a_documented_field_of_the_api(tmp_path: Path) -> None:
    for room in ("unprm", "server"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("weights", "__pycache__"))
    options = tmp_path / "unprm" / "models" / "options.py"
    text = options.read_text("utf-8")
    place = "    revision: str | None = Field("
    assert text.count(place) == 1
    options.write_text(text.replace(place, FIELD + place), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNPRM_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=tmp_path,
        env=environment | {"UNPRM_FLAVOUR": "sea", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    from_environment, from_command_line, from_python, of_admin, *_, status = done.stdout.splitlines()
    assert (from_environment, from_command_line, from_python) == ("sea", "salt", "mint")
    assert "What it tastes of." in of_admin
    assert status == "0"
    assert "--flavour" in done.stdout
    assert done.stdout.count("What it tastes of.") == 2
    assert "UNPRM_FLAVOUR" in done.stdout
