"""`python -m unprm_client replay`: the requests of a journal, sent again."""

from pathlib import Path

from typer.testing import CliRunner

from tests.server.harness import Running, ask, boxed, serving
from unprm.engines.fake import FakeEngine
from unprm.types import Encoded
from unprm_client.__main__ import app

VOTE = ask(boxed(1, "ş a"), boxed(2, "b"), boxed(1, "c"))


def replayed(file: Path, server: Running) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["replay", str(file), server.url])
    return result.exit_code, result.stdout


def test_a_journal_is_replayed(tmp_path: Path) -> None:
    with serving(journal=tmp_path / "j") as server:
        for path in ("/score_steps", "/vote/wrf", "/vote/compare"):
            assert server.post(path, VOTE).status_code == 200
        server.post("/vote/wrf", {"solutions": []})
    with serving() as server:
        assert replayed(tmp_path / "j", server) == (0, "3 of 3 answers are the same\n")
    with serving(FakeEngine(scores=lambda item: [0.5] * len(item.positions))) as server:
        status, output = replayed(tmp_path / "j", server)
    assert status == 1
    assert "0 of 3 answers are the same" in output
    assert "/vote/compare" in output


def test_answers_are_shown_as_they_are(tmp_path: Path) -> None:
    """They are no markup of the terminal."""

    def longest(item: Encoded) -> list[float]:
        return [len(item.ids) / 1000]

    def shortest(item: Encoded) -> list[float]:
        return [1 - len(item.ids) / 1000]

    with serving(FakeEngine(scores=longest), journal=tmp_path / "j") as server:
        assert server.post("/vote/prm", ask("\\boxed{[/b]}, and this is long", "\\boxed{2}")).json()["answer"] == "[/b]"
    with serving(FakeEngine(scores=shortest)) as server:
        status, output = replayed(tmp_path / "j", server)
    assert status == 1
    assert [cell.strip() for cell in output.splitlines()[4].split("│")][2:-1] == [
        "/vote/prm",
        "/answer",
        "'[/b]'",
        "'2'",
    ]
