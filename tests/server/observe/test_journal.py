"""The journal of requests."""

import logging
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from server.journal import Entry, Journal, JournalUnusable
from tests.fake_engine import FakeEngine
from tests.fakes import openai_server
from tests.server.harness import ask, boxed, serving
from tests.support import until

JSON = {"Content-Type": "application/json"}
VOTE = ask(boxed(1, "ş a"), boxed(2, "b"), boxed(1, "c"))


def rows(file: Path, query: str = "SELECT * FROM requests ORDER BY id") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def entry(number: int, size: int = 1000) -> Entry:
    return Entry("now", str(number), "", "/score_steps", 200, 1.0, b"x" * size, b"{}")


def test_requests_and_answers_are_written_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    (tmp_path / "keys").write_text("anna anna-s-own-key\n")
    headers = {"Authorization": "Bearer anna-s-own-key", "X-Request-ID": "mine"}
    with serving(journal=file, api_keys_file=tmp_path / "keys") as server:
        voted = server.post("/vote/wrf", VOTE, headers=headers)
        refused = server.http.post("/score_steps", content=b"\xff{", headers=headers | JSON)
        assert server.post("/score_steps", VOTE).status_code == 401  # nothing of it was read
        assert server.get("/model", headers=headers).status_code == 200  # has no body: not written
    with closing(sqlite3.connect(file)) as database:
        database.text_factory = bytes
        query = "SELECT request_id, caller, path, status, request, response FROM requests"
        entries = database.execute(query).fetchall()
    assert entries == [
        (b"mine", b"anna", b"/vote/wrf", 200, voted.request.content, voted.content),
        (b"mine", b"anna", b"/score_steps", 400, b"\xff{", refused.content),
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_verdicts_are_a_view(tmp_path: Path) -> None:
    with serving(journal=tmp_path / "j") as server:
        voted = server.post("/vote/majority", VOTE).json()
        default = server.post("/vote", VOTE).json()
        server.post("/vote/compare", VOTE)
        server.post("/score_steps", VOTE)
        server.post("/vote/majority", ask("I can't tell."))
    assert rows(tmp_path / "j", "SELECT path, strategy, answer, decided_by, tie, margin, model FROM verdicts") == [
        ("/vote/majority", "majority", "1", "majority", 0, voted["margin"], "fake"),
        ("/vote", "wrf", default["answer"], "combined", 0, default["margin"], "fake"),
    ]


def test_without_the_option_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        server.post("/score_steps", ask("a"))
        assert "journal" not in server.get("/metrics").text
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_go_when_it_is_full(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 2**20)
    for number in range(5000):
        journal.note(entry(number))
    journal.close()
    numbers = [int(str(row[2])) for row in rows(tmp_path / "j")]
    assert numbers == list(range(5000 - len(numbers), 5000))
    assert 500 < len(numbers) < 1000
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1.5 * 2**20


def test_an_old_journal_is_gone_on_with(tmp_path: Path) -> None:
    for number in range(3):
        journal = Journal(tmp_path / "j", 2**20)
        journal.note(entry(number))
        journal.close()
    assert [row[2] for row in rows(tmp_path / "j")] == ["0", "1", "2"]


def test_what_cannot_be_written_is_counted_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "j"
    with serving(journal=file) as server, caplog.at_level(logging.INFO):
        with closing(sqlite3.connect(file)) as database:
            database.execute("ALTER TABLE requests RENAME TO elsewhere")
            for _ in range(3):
                assert server.post("/score_steps", ask("CANARY")).status_code == 200
            until(lambda: server.metric("unprm_journal_dropped_total") == 3)
            database.execute("ALTER TABLE elsewhere RENAME TO requests")
        assert server.post("/score_steps", ask("b")).status_code == 200
    assert len(rows(file)) == 1
    assert [record.levelname for record in caplog.records if record.name == "server.journal"] == ["ERROR"]
    assert "CANARY" not in caplog.text


def test_what_comes_faster_than_it_is_written_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 2**20, waiting_bytes=5000)
    journal.note(entry(0, size=4000))
    journal.note(entry(1, size=10_000))
    journal.close()
    assert journal.dropped == 1
    assert len(rows(tmp_path / "j")) == 1


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database " * 100)
    for file in (tmp_path / "text", tmp_path, tmp_path / "none" / "j"):
        with pytest.raises(JournalUnusable, match=str(file)):
            Journal(file, 2**20)


def test_one_large_request_does_not_push_out_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", 2**20)
    for number in range(500):
        journal.note(entry(number))
    journal.note(entry(500, size=900_000))
    journal.close()
    assert len(rows(tmp_path / "j")) == 501
    assert rows(tmp_path / "j", "SELECT request, response FROM requests WHERE request_id = '500'") == [("null", "null")]
    rows(tmp_path / "j", "SELECT * FROM verdicts")


def test_others_can_no_longer_read_a_file_that_they_could(tmp_path: Path) -> None:
    for name in ("j", "j-wal"):
        (tmp_path / name).touch(0o644)
        (tmp_path / name).chmod(0o644)
    journal = Journal(tmp_path / "j", 2**20)
    journal.note(entry(0))
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    journal.close()


def test_keys_that_an_administrator_sends_are_not_written(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer an-admin-s-key"}
    with serving(None, lambda request: FakeEngine(), journal=tmp_path / "j", admin_key="an-admin-s-key") as server:
        for name in ("right", 7):
            sent = {"name": name, "model": "unprm-mini", "judge_key": "CANARY"}
            assert server.post("/admin/models", sent, headers=headers).status_code == 422
        server.post("/score_steps", VOTE)
    assert rows(tmp_path / "j", "SELECT path FROM requests") == [("/score_steps",)]


def test_of_a_long_stream_only_the_beginning_is_kept(tmp_path: Path) -> None:
    events = b"data: " + b"x" * 3_000_000 + b"\n\n"
    with openai_server(lambda body: events) as (url, _), serving(upstream_url=url, journal=tmp_path / "j") as server:
        answer = server.post("/v1/completions", {"model": "m", "prompt": "p", "stream": True}).content
    assert answer == events
    assert rows(tmp_path / "j", "SELECT response FROM requests") == [(events[: 2**20].decode(),)]
