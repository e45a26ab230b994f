"""A run's files, as the server gives them to the page that shows it."""

from pathlib import Path

import pytest

from server.settings import Settings, SettingsInvalid
from tests.server.harness import serving


@pytest.fixture
def run(tmp_path: Path) -> Path:
    place = tmp_path / "lab"
    for name in ("findings.json", "figures/lanes.png", "benchmark/level-1.jsonl", "prm/model.safetensors", ".env"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("{}")
    (tmp_path / "secret.json").write_text('"secret"')
    (place / "link.json").symlink_to(tmp_path / "secret.json")
    return place


def test_records_and_figures_are_listed_and_served_and_nothing_else(run: Path) -> None:
    with serving(report=run) as server:
        listed = server.get("/report").json()
        assert listed["name"] == "lab"
        assert {"benchmark/level-1.jsonl", "figures/lanes.png", "findings.json"} <= set(listed["files"])
        assert not {"prm/model.safetensors", ".env", "link.json"} & set(listed["files"])
        for name in ("benchmark/level-1.jsonl", "figures/lanes.png", "findings.json"):
            response = server.get(f"/report/{name}")
            assert response.text == "{}"
            assert "default-src 'none'" in response.headers["content-security-policy"]
        for name in ("prm/model.safetensors", ".env", "nothing.json", "link.json", "..%2fsecret.json", "figures"):
            assert server.get(f"/report/{name}").json()["code"] == "not_found", name


def test_a_run_needs_the_key(run: Path) -> None:
    with serving(report=run, api_key="k") as server:
        for path in ("/report", "/report/findings.json"):
            assert server.get(path).status_code == 401
            assert server.get(path, headers={"Authorization": "Bearer k"}).status_code == 200


def test_without_one_there_is_nothing() -> None:
    with serving() as server:
        assert server.get("/report").json() == {"name": None, "files": []}
        assert server.get("/report/findings.json").status_code == 404


def test_a_directory_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="report"):
        Settings.load(["--report", str(tmp_path / "nowhere")])
