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
    (place / "a.jsonl").write_text('{"id": "a"}\n')
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


HOSTILE_IDS = ["", "c", "A", "0", '"a"', "a\n", "a\x00", ".*", "%", "../a", "a&id=b", "\ud7ff", "x" * 8000]


def test_a_record_is_served_by_its_id_and_nothing_else(run: Path) -> None:
    lines = [
        '{"id": "a", "n": 1}',
        "[]",
        "no json",
        '"b"',
        "{}",
        '{"id": 0}',
        '{"id": "b", "ş": "\\ud83e"}',
        '{"id": "c", ',
    ]
    path = "/report/best-of-n/elections.jsonl"
    (run / "best-of-n").mkdir()
    (run / "best-of-n" / "elections.jsonl").write_text("\n".join(lines), "utf-8")
    with serving(report=run) as server:
        for name, line in (("a", lines[0]), ("b", lines[6])):
            response = server.get(path, params={"id": name})
            assert response.text == line + "\n"
            assert response.headers["content-type"] == "application/json"
            assert "default-src 'none'" in response.headers["content-security-policy"]
        for name in HOSTILE_IDS:
            response = server.get(path, params={"id": name})
            assert (response.status_code, response.json()["code"]) == (404, "not_found"), name[:20]
        for other in (
            "findings.json",
            "figures/lanes.png",
            "nothing.jsonl",
            "..%2fsecret.json",
            "prm/model.safetensors",
        ):
            assert server.get(f"/report/{other}", params={"id": "a"}).status_code == 404, other
        assert server.get(path).text.splitlines() == lines


def test_a_run_needs_the_key(run: Path) -> None:
    with serving(report=run, api_key="k") as server:
        for path in ("/report", "/report/findings.json", "/report/benchmark/level-1.jsonl", "/report/a.jsonl?id=a"):
            assert server.get(path).status_code == 401
            assert server.get(path, headers={"Authorization": "Bearer k"}).status_code == 200


def test_without_one_there_is_nothing() -> None:
    with serving() as server:
        assert server.get("/report").json() == {"name": None, "files": []}
        assert server.get("/report/findings.json").status_code == 404


def test_a_directory_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="report"):
        Settings.load(["--report", str(tmp_path / "nowhere")])
