"""`python -m unprm_client`: what it reads, prints and returns."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.server.calibrations import calibration
from tests.server.harness import PROBLEM, Running, boxed, serving
from unprm.engines.fake import FakeEngine
from unprm_client.__main__ import app

HOSTILE = "a\x1b[31mred\x1b]0;title\x07 [bold]b[/bold] \u202eesrever"


def request(*solutions: Any, **more: Any) -> dict[str, Any]:
    return {"problem": PROBLEM, "solutions": list(solutions), **more}


def given(answer: str, *scores: float) -> dict[str, Any]:
    return {"steps": [f"step {k}" for k in range(len(scores))], "answer": answer, "step_scores": list(scores)}


def run(server: Running, *arguments: str, stdin: str | None = None) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--url", server.url], stdin)


def test_at_a_risk_it_is_said_whether_an_answer_is_accepted(tmp_path: Path) -> None:
    sure, alone = ([given("7", 0.9)] * count for count in (3, 1))
    with serving(vote_calibration=calibration(tmp_path)) as running:
        said = [run(running, "vote", "--risk", "0.05", stdin=json.dumps(request(*each))) for each in (sure, alone)]
    assert [json.loads(each.output)["accept"] for each in said] == [True, False]


def test_the_default_vote_is_the_server_s() -> None:
    body = json.dumps(request(boxed(7), boxed(8)))
    for demo, strategy in ((True, "majority"), (False, "wrf")):
        with serving(FakeEngine(demo=demo)) as running:
            assert json.loads(run(running, "vote", stdin=body).output)["strategy"] == strategy


def test_a_server_that_is_away_is_named() -> None:
    result = CliRunner().invoke(app, ["score", "--url", "http://127.0.0.1:9"], json.dumps(request("a")))
    assert result.exit_code == 1
    assert result.stderr.startswith("request 1: the server at http://127.0.0.1:9 can't be reached: ")


def test_alpha_is_passed_on(server: Running) -> None:
    body = json.dumps(request(given("7", 0.9), given("8", 0.4), given("8", 0.4)))
    for alpha, answer in (("0", "8"), ("1", "7")):
        result = run(server, "vote", "--strategy", "wrf", "--alpha", alpha, stdin=body)
        assert json.loads(result.output)["answer"] == answer


def test_many_requests_are_a_line_each(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(json.dumps(request(boxed(k))) + "\n" for k in range(9)) + "\n", "utf-8")
    result = run(server, "vote", str(file))
    assert result.exit_code == 0
    expected = [server.post("/vote", request(boxed(k))).json() for k in range(9)]
    assert [json.loads(line) for line in result.output.splitlines()] == expected


def test_one_that_fails_is_told_and_the_others_answered(server: Running) -> None:
    lines = [request(boxed(1)), request("no answer"), request(boxed(3))]
    result = run(server, "vote", stdin="\n".join(map(json.dumps, lines)))
    assert result.exit_code == 1
    assert [json.loads(line)["answer"] for line in result.stdout.splitlines()] == ["1", "3"]
    assert result.stderr.startswith("request 2: no_answer: none of the 1 solutions has an answer")


@pytest.mark.parametrize(
    ("stdin", "reason"),
    [
        ("", "is empty"),
        ("[1]", "a request is a JSON object, not a list"),
        ('{"problem": "p"}\n{"problem', "line 2"),
        ("[" * 100_000, "line 1: recursion limit exceeded"),
        ('{"problem": "p"}\n' + '{"problem":' * 100_000, "line 2: recursion limit exceeded"),
        (r'{"problem": "\ud800"}', "line 1"),
        ('{"problem": "p"}\n3\n', "line 2: a request is a JSON object, not a int"),
    ],
)
def test_what_is_no_request_is_told(server: Running, stdin: str, reason: str) -> None:
    result = run(server, "score", stdin=stdin)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.replace("│", " ").split())


def test_a_file_that_is_not_there_is_told(server: Running, tmp_path: Path) -> None:
    result = run(server, "score", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 2
    assert "can't be read" in result.stderr


def test_hostile_text_stays_text(server: Running) -> None:
    solution = {"id": HOSTILE, "steps": [HOSTILE], "answer": HOSTILE, "step_scores": [0.2]}
    for command in ("score", "vote", "compare"):
        result = run(server, command, stdin=json.dumps(request(solution)))
        assert result.exit_code == 0
        assert not {"\x1b", "\x07"} & set(result.output)


def test_key_and_address_may_be_variables(server: Running) -> None:
    environment = {"UNPRM_CLIENT_URL": server.url, "UNPRM_CLIENT_KEY": "k"}
    result = CliRunner().invoke(app, ["score"], json.dumps(request("a")), env=environment)
    assert result.exit_code == 0
    assert json.loads(result.output)["model"] == "fake"
