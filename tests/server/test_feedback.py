"""Feedback: whether elected answers were right, from a client to the metrics and to a new calibration."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from typer.testing import CliRunner

from server.journal import _ACCEPTED
from tests.fakes import upstream
from tests.server.harness import Running, ask, bearer, boxed, serving
from tests.support import until
from training.__main__ import app
from unprm.election.acceptance import VoteCalibration, error_interval, read
from unprm.votes.registry import DEFAULTS

VOTE = ask(boxed(5, "a"), boxed("5.0", "b"), boxed(6, "c"))
CALIBRATION = VoteCalibration(
    pool="some",
    date="2026-01-31",
    confidence=0.9,
    model=None,
    aggregate=None,
    terms=DEFAULTS.model_dump(),
    elections={"majority": [(share / 100, share > 40) for share in range(1, 100) for _ in range(9)]},
    ranges={},
)


@contextmanager
def journalled(tmp_path: Path, **options: Any) -> Iterator[Running]:
    CALIBRATION.write(tmp_path / "calibration.json")
    with serving(journal=tmp_path / "j", vote_calibration=tmp_path / "calibration.json", **options) as server:
        yield server


def judge(server: Running, request_id: str, key: str = "none", **verdict: Any) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    return server.post("/feedback", {"request_id": request_id, **verdict}, headers=headers)


def metrics(server: Running) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in server.get("/metrics").text.splitlines() if "_accepted_" in line]
    return {name.removeprefix("unprm_accepted_"): float(value) for name, value in lines if name[0] != "#"}


def test_accepted_answers_that_were_wrong_are_a_metric(tmp_path: Path) -> None:
    with journalled(tmp_path) as server:
        ids = [
            server.post("/vote/majority", VOTE | {"risk": risk}).headers["X-Request-ID"] for risk in (0.05, 0.15, 0.1)
        ]
        unasked = server.post("/vote/wrf", VOTE).headers["X-Request-ID"]
        assert metrics(server) == {}
        assert judge(server, ids[0], correct=False).json() == {"correct": False, "accept": True}
        assert judge(server, ids[1], correct=False).json()["accept"]
        assert judge(server, ids[1], answer="5").json() == {"correct": True, "accept": True}  # replaces the first
        assert judge(server, ids[2], answer="x = 5").json()["correct"]
        assert judge(server, unasked, answer="6").json() == {"correct": False, "accept": None}
        found = metrics(server)
    assert found == {
        "judged": 3,
        "risk": pytest.approx(0.1),
        'error{bound="share"}': pytest.approx(1 / 3),
        'error{bound="low"}': pytest.approx(0.0084, abs=1e-4),
        'error{bound="high"}': pytest.approx(0.9057, abs=1e-4),
    }
    with journalled(tmp_path) as server:
        assert metrics(server) == found


def test_only_the_key_that_asked_may_judge_and_only_votes(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("anna anna-s-own-key\nbert bert-s-own-key\n")
    anna = {"Authorization": "Bearer anna-s-own-key"}
    with journalled(tmp_path, api_keys_file=tmp_path / "keys") as server:
        vote = server.post("/vote/majority", VOTE, headers=anna).headers["X-Request-ID"]
        scores = server.post("/score_steps", VOTE, headers=anna).headers["X-Request-ID"]
        refused = [
            judge(server, vote, "bert-s-own-key", correct=True),
            judge(server, scores, "anna-s-own-key", correct=True),
        ]
        assert judge(server, vote, "anna-s-own-key", correct=True).status_code == 200
        for wrong in ({}, {"correct": True, "answer": "5"}):
            assert (
                "expected exactly one of correct and answer"
                in judge(server, vote, "anna-s-own-key", **wrong).json()["detail"]
            )
    for each in refused:
        assert (each.status_code, each.json()["errors"][0]["pointer"]) == (422, "/request_id")


def test_without_a_journal_the_option_is_named() -> None:
    with serving() as server:
        refused = judge(server, "x", correct=True)
    assert (refused.status_code, "start the server with --journal FILE" in refused.json()["detail"]) == (404, True)


def test_texts_are_left_out_if_the_operator_says_so(tmp_path: Path) -> None:
    with journalled(tmp_path, journal_without_texts=True) as server:
        vote = server.post("/vote/majority", VOTE | {"risk": 0.1}).headers["X-Request-ID"]
        assert "send correct in place of answer" in judge(server, vote, answer="5").json()["detail"]
        assert judge(server, vote, correct=True).json()["accept"]
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        rows = database.execute("SELECT request, response, election FROM requests").fetchall()
    assert {row[:2] for row in rows} == {("null", "null")}
    assert json.loads(rows[0][2])["answer"] is None


def test_a_journal_of_before_gets_the_columns_and_the_index(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        database.executescript(
            "CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT, request_id TEXT, caller TEXT, "
            "path TEXT, status INTEGER, milliseconds REAL, request TEXT, response TEXT); INSERT INTO requests "
            "(time, request_id, caller, path, status, milliseconds, request, response) "
            "VALUES ('t', 'old', '', '/vote', 200, 1, '{}', '{}')"
        )
    with journalled(tmp_path) as server:
        assert judge(server, "old", correct=True).status_code == 422
        vote = server.post("/vote/majority", VOTE).headers["X-Request-ID"]
        assert judge(server, vote, correct=True).status_code == 200
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        plans = [
            database.execute(f"EXPLAIN QUERY PLAN {_ACCEPTED} {condition}").fetchone()[-1]
            for condition in ("", "AND id = 1", "AND id <= 9")
        ]
    assert "USING INDEX accepted" in plans[0]  # at the start
    assert all("USING INTEGER PRIMARY KEY" in plan for plan in plans[1:]), "a feedback counts one"


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_are_judged_and_recalibrate_their_votes(tmp_path: Path, stream: bool) -> None:
    with (
        upstream("It is \\boxed{5}.", "5", "6", *["5", "5", "6"]) as reasoner,
        journalled(tmp_path, upstream_url=reasoner.url) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        for right in ("5", "6"):
            terms = {"strategy": "majority", "budget": 3, "round": 3, "risk": 0.1}
            messages: Any = [{"role": "user", "content": "2 + 3?"}]
            with client.chat.completions.with_streaming_response.create(
                model="m", messages=messages, stream=stream, extra_body={"unprm": terms}
            ) as answer:
                answer.read()
            judging = partial(judge, server, answer.headers["X-Request-ID"], answer=right)
            until(lambda judging=judging: judging().status_code == 200)  # a stream's end is sent before it is noted
            assert judging().json()["correct"] == (right == "5")
    command = ["evaluate", "calibrate-votes", "--journal", str(tmp_path / "j"), "--output"]
    refused = CliRunner().invoke(app, [*command, str(tmp_path / "j")])
    assert (refused.exit_code, "--output: it is the journal" in refused.output) == (2, True)
    made = CliRunner().invoke(app, [*command, str(tmp_path / "new.json")])
    assert made.exit_code == 0, made.output
    assert "feedback: 2 of no named key" in made.output
    calibration = read(tmp_path / "new.json")
    assert (calibration.pool, calibration.elections) == ("j", {"majority": [(2 / 3, True), (2 / 3, False)]})
    assert calibration.ranges["candidates"] == (3, 3)


LABELS = ['{"label": "spam", "n": 1}', '{"label": "spam", "n": 2}', '{"label": "ham", "n": 2}']


@pytest.mark.parametrize(
    ("texts", "terms", "verdicts"),
    [
        (LABELS, {"vote_on": ["/label"]}, {"spam": True, '"spam"': True, "ham": False, "null": False}),
        (LABELS[:1] * 3, {}, {'{"n": 1.0, "label": "spam"}': True, "spam": False}),
        (['{"x": "%s"}' % ("y" * 2000)] * 3, {}, {'{"x":"%s"}' % ("y" * 2000): True}),
    ],
)  # fmt: skip
def test_answers_in_json_are_compared_as_they_were_voted_on(
    tmp_path: Path, texts: list[str], terms: dict[str, Any], verdicts: dict[str, bool]
) -> None:
    """A label needs no quotation marks, and what is longer than the report shows is whole."""
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "response_format": {"type": "json_object"}}
    unprm = {"strategy": "majority", "budget": 3, "round": 3, "stable": 1, **terms}
    with upstream(*texts) as reasoner, journalled(tmp_path, upstream_url=reasoner.url) as server:
        chat = server.post("/v1/chat/completions", body | {"unprm": unprm}).headers["X-Request-ID"]
        assert {text: judge(server, chat, answer=text).json()["correct"] for text in verdicts} == verdicts


def test_an_answer_is_named_by_its_id(tmp_path: Path) -> None:
    chat = {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "unprm": {"budget": 2, "strategy": "majority"},
    }
    with upstream(boxed(1)[0]) as reasoner, journalled(tmp_path, upstream_url=reasoner.url) as server:
        for path, body in (
            ("chat/completions", chat),
            ("messages", chat | {"max_tokens": 9}),
            ("responses", {"model": "m", "input": "q", "unprm": chat["unprm"]}),
        ):
            answer = server.post(f"/v1/{path}", body)
            for name in (answer.json()["id"], answer.headers["X-Request-ID"]):
                assert judge(server, name, answer="1").json()["correct"]
        streamed = server.post("/v1/chat/completions", chat | {"stream": True}).text
        assert not judge(server, json.loads(streamed.split("\n")[0].removeprefix("data: "))["id"], answer="2").json()[
            "correct"
        ]
        own = server.post("/v1/chat/completions", chat, headers={"X-Request-ID": "msg_7"}).json()["id"]
        assert [judge(server, each, correct=True).status_code for each in ("msg_7", own, "msg_8")] == [200, 200, 422]


def test_tool_calls_are_compared_as_values(tmp_path: Path) -> None:
    calls = [
        {"id": str(number), "type": "function", "function": {"name": name, "arguments": '{"b": 1.0, "a": [true]}'}}
        for number, name in enumerate("fg")
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools, "unprm": {"budget": 2}}
    rights = {
        'g({"a":[true],"b":1})\nf({"a":[true],"b":1})': True,
        'f({ "b": 1, "a": [true] })\n g({"b": 1, "a": [true]})': True,
        json.dumps([*reversed(calls)]): True,
        json.dumps([{"name": each["function"]["name"], "arguments": {"a": [True], "b": 1}} for each in calls]): True,
        json.dumps(calls[0]): False,
        'f({"a":[true],"b":2})\ng({"a":[true],"b":1})': False,
        "no call": False,
        "[1]": False,
    }
    with upstream(message) as reasoner, journalled(tmp_path, upstream_url=reasoner.url) as server:
        chat = server.post("/v1/chat/completions", body).json()["id"]
        assert {text: judge(server, chat, answer=text).json()["correct"] for text in rights} == rights


def test_while_the_journal_cannot_be_used_feedback_is_asked_for_again(tmp_path: Path) -> None:
    with journalled(tmp_path) as server:
        vote = server.post("/vote/majority", VOTE).headers["X-Request-ID"]
        assert judge(server, vote, correct=False).status_code == 200
        with closing(sqlite3.connect(tmp_path / "j")) as database:
            database.execute("ALTER TABLE requests RENAME TO elsewhere")
            refused = judge(server, vote, correct=True)
            database.execute("ALTER TABLE elsewhere RENAME TO requests")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        assert "the journal can't be used now" in refused.json()["detail"]
        assert judge(server, vote, correct=True).status_code == 200


def test_calibrations_can_be_limited_to_the_feedback_of_some_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one 11111111\ntwo 22222222\nthree 33333333\n")
    with journalled(tmp_path, api_keys_file=tmp_path / "keys") as server:
        for key, right in (("11111111", True), ("11111111", True), ("22222222", False)):
            vote = server.post("/vote/majority", VOTE, headers=bearer(key)).headers["X-Request-ID"]
            body = {"request_id": vote, "correct": right}
            assert server.post("/feedback", body, headers=bearer(key)).status_code == 200
    command = ["evaluate", "calibrate-votes", "--journal", str(tmp_path / "j"), "--output", str(tmp_path / "c")]
    for callers, told, verdicts in (
        ((), "feedback: 2 of one, 1 of two", [True, True, False]),
        (("one",), "feedback: 2 of one", [True, True]),
        (("one", "two"), "feedback: 2 of one, 1 of two", [True, True, False]),
    ):
        made = CliRunner().invoke(app, [*command, *(f"--caller={name}" for name in callers)])
        assert (made.exit_code, told in made.output.splitlines()) == (0, True), made.output
        assert [right for _, right in read(tmp_path / "c").elections["majority"]] == verdicts
    refused = CliRunner().invoke(app, [*command, "--caller", "three"])
    assert "was judged by these callers" in str(refused.exception)


def test_accepted_answers_that_the_journal_no_longer_has_do_not_count(tmp_path: Path) -> None:
    with journalled(tmp_path, journal_mb=1) as server:
        vote = server.post("/vote/majority", VOTE | {"risk": 0.15}).headers["X-Request-ID"]
        assert judge(server, vote, correct=False).json()["accept"]
        assert metrics(server)["judged"] == 1
        for _ in range(90):
            server.post("/score_steps", ask("x" * 14_000))
        until(lambda: metrics(server) == {})


def test_the_interval_is_exact() -> None:
    assert error_interval(0, 10) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert error_interval(5, 100) == (pytest.approx(0.0164, abs=1e-4), pytest.approx(0.1128, abs=1e-4))
    assert error_interval(3, 3)[1] == 1.0
    assert error_interval(500_000, 1_000_000) == (pytest.approx(0.49902, abs=1e-5), pytest.approx(0.50098, abs=1e-5))
