"""`python -m unprm_client`: what it reads, prints and returns."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fake_engine import FakeEngine
from tests.server.calibrations import calibration
from tests.server.harness import PROBLEM, Running, boxed, serving
from unprm_client.__main__ import app

HOSTILE = "a\x1b[31mred\x1b]0;title\x07 [bold]b[/bold] \u202eesrever"


def request(*solutions: Any, **more: Any) -> dict[str, Any]:
    return {"problem": PROBLEM, "solutions": list(solutions), **more}


def given(answer: str, *scores: float) -> dict[str, Any]:
    return {"steps": [f"step {k}" for k in range(len(scores))], "answer": answer, "step_scores": list(scores)}


def run(server: Running, *arguments: str, stdin: str | None = None) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--url", server.url], stdin)


def test_scores_are_shown_step_by_step(server: Running) -> None:
    result = run(server, "score", stdin=json.dumps(request(given("7", 0.9, 0.1, 0.2)), indent=1))
    assert result.exit_code == 0
    assert [line.strip() for line in result.output.splitlines()] == [
        "",
        "solution 0: answer 7, reward 0.100",
        "0.900 ✓ step 0",
        "0.100 ✗ step 1  ← first error",
        "0.200 ✗ step 2",
        "",
        "fake: 0 tokens computed, 0 from cache",
    ]


def test_the_threshold_of_the_request_applies(server: Running) -> None:
    result = run(server, "score", stdin=json.dumps(request(given("7", 0.9, 0.1), threshold=0.05)))
    assert "✗" not in result.output


def test_scores_of_a_demonstration_are_judged_in_its_domain_alone() -> None:
    inside = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    with serving(FakeEngine(demo=True, scores=lambda item: [0.1])) as running:
        for command in (["score"], ["vote", "--strategy", "prm"]):
            known, unknown = (
                run(running, *command, stdin=json.dumps({"problem": problem, "solutions": [boxed(7), boxed(8)]})).output
                for problem in (inside, "What is 3 + 4?")
            )
            assert "this problem is in it." in known
            assert "0.100 ✗ The answer is \\boxed{7}.  ← first error" in known
            assert "this problem is outside it: the scores mean nothing." in unknown
            assert "0.100   The answer is \\boxed{7}." in unknown
            assert not {"✗", "✓", "←"} & set(unknown)
        compared = run(running, "compare", stdin=json.dumps(request(boxed(7), boxed(8)))).output
        assert "the scores mean nothing" in compared


def test_at_a_risk_it_is_said_whether_an_answer_is_accepted(tmp_path: Path) -> None:
    sure, alone = ([given("7", 0.9)] * count for count in (3, 1))
    with serving(vote_calibration=calibration(tmp_path)) as running:
        said = [run(running, "vote", "--risk", "0.05", stdin=json.dumps(request(*each))) for each in (sure, alone)]
        compared = run(running, "compare", "--risk", "0.05", stdin=json.dumps(request(*sure)))
    assert "decided by: unanimous, accepted at a risk of 5 %" in said[0].output
    assert "not accepted at a risk of 5 % (beyond the calibration: candidates)" in said[1].output
    assert ("accepted" in compared.output, " yes " in compared.output) == (True, True)


def test_the_default_vote_is_the_server_s() -> None:
    body = json.dumps(request(boxed(7), boxed(8)))
    for demo, strategy in ((True, "majority"), (False, "wrf")):
        with serving(FakeEngine(demo=demo)) as running:
            assert run(running, "vote", stdin=body).output.startswith(f"{strategy} elects ")


def test_a_server_that_is_away_is_named() -> None:
    result = CliRunner().invoke(app, ["score", "--url", "http://127.0.0.1:9"], json.dumps(request("a")))
    assert result.exit_code == 1
    assert result.stderr.startswith("request 1: the server at http://127.0.0.1:9 can't be reached: ")


def test_a_vote_is_shown_as_a_table(server: Running) -> None:
    body = request(given("7", 0.9), given("8", 0.4), given("7", 0.7))
    result = run(server, "vote", "--strategy", "weighted", stdin=json.dumps(body))
    assert result.exit_code == 0
    assert "weighted elects 7  decided by: combined, margin 1.200" in result.output
    rows = [line.replace("│", " ").split() for line in result.output.splitlines() if line.startswith("│")]
    assert rows == [["7", "2", "0.800", "0.900", "1.600", "█" * 20], ["8", "1", "0.400", "0.400", "0.400", "█" * 5]]
    assert "solution 0: answer 7, reward 0.900" in result.output


def test_ties_are_told(server: Running) -> None:
    result = run(server, "vote", "--strategy", "majority", stdin=json.dumps(request(given("7", 0.9), given("8", 0.4))))
    assert "a tie of 7, 8" in result.output


def test_one_readable_candidate_is_not_unanimous(server: Running) -> None:
    body = json.dumps(request(boxed(7), ["I can't tell."], ["nothing"]))
    said = run(server, "vote", stdin=body).output
    assert "decided by: only_answer\n1 of 3 candidates readable, 2 state no answer" in said
    assert "1 of 3 candidates readable" in run(server, "compare", stdin=body).output


def test_alpha_is_passed_on(server: Running) -> None:
    body = json.dumps(request(given("7", 0.9), given("8", 0.4), given("8", 0.4)))
    for alpha, answer in (("0", "8"), ("1", "7")):
        result = run(server, "vote", "--strategy", "wrf", "--alpha", alpha, "--json", stdin=body)
        assert json.loads(result.output)["answer"] == answer


def test_all_votes_side_by_side(server: Running) -> None:
    result = run(server, "compare", stdin=json.dumps(request(given("7", 0.9), given("8", 0.4), given("8", 0.4))))
    assert "the votes disagree" in result.output
    for strategy in ("majority", "prm", "hmr", "wrf", "weighted"):
        assert strategy in result.output


def test_many_requests_are_a_line_each(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(json.dumps(request(boxed(k))) + "\n" for k in range(9)) + "\n", "utf-8")
    result = run(server, "vote", str(file), "--json")
    assert result.exit_code == 0
    expected = [server.post("/vote", request(boxed(k))).json() for k in range(9)]
    assert [json.loads(line) for line in result.output.splitlines()] == expected


def test_a_bar_on_the_terminal_leaves_the_answers_to_a_file(server: Running) -> None:
    sent = "".join(json.dumps(request(given(answer, 0.9))) + "\n" for answer in "78")
    arguments = ["score", "--json", "--url", server.url]
    result = CliRunner(env={"FORCE_COLOR": "1"}).invoke(app, arguments, sent)  # makes rich take stderr for a terminal
    assert [json.loads(line)["solutions"][0]["answer"] for line in result.stdout.splitlines()] == ["7", "8"]
    assert "answered" in result.stderr


def test_one_that_fails_is_told_and_the_others_answered(server: Running) -> None:
    lines = [request(boxed(1)), {"solutions": ["I can't tell."]}, request(boxed(3))]
    result = run(server, "vote", "--json", stdin="\n".join(map(json.dumps, lines)))
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
        assert not {"\x1b", "\x07", "\u202e"} & set(result.output)
        assert "[bold]b[/bold]" in result.output


def test_a_vote_without_scores_is_shown(server: Running) -> None:
    result = run(server, "vote", "--strategy", "majority", stdin=json.dumps(request(boxed(1), boxed(1), boxed(2))))
    assert "–    The answer is \\boxed{1}." in result.output


def test_key_and_address_may_be_variables(server: Running) -> None:
    environment = {"UNPRM_CLIENT_URL": server.url, "UNPRM_CLIENT_KEY": "k"}
    result = CliRunner().invoke(app, ["score", "--json"], json.dumps(request("a")), env=environment)
    assert result.exit_code == 0
    assert json.loads(result.output)["model"] == "fake"
