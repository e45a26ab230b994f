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


def rows(result: Any) -> list[list[str]]:
    """The cells of a table's rows."""
    assert result.exit_code == 0, result.output
    lines = (line for line in result.output.splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in lines]


def test_scores_are_shown_step_by_step(server: Running) -> None:
    body = request(given("7", 0.9, 0.1, 0.2), given("8", 0.8) | {"id": "b"})
    assert rows(run(server, "score", stdin=json.dumps(body, indent=1))) == [
        ["0", "7", "0.100", "step 0", "0.900", ""],
        ["", "", "", "step 1", "0.100", "←"],
        ["", "", "", "step 2", "0.200", ""],
        ["b", "8", "0.800", "step 0", "0.800", ""],
    ]


def test_the_threshold_of_the_request_applies(server: Running) -> None:
    result = run(server, "score", stdin=json.dumps(request(given("7", 0.9, 0.1), threshold=0.05)))
    assert "←" not in result.output


def test_scores_of_a_demonstration_are_judged_in_its_domain_alone() -> None:
    inside = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    with serving(FakeEngine(demo=True, scores=lambda item: [0.1])) as running:
        known, unknown = (
            run(
                running, "score", stdin=json.dumps({"problem": problem, "solutions": [["Step 1: 23 + 45 = 68."]]})
            ).output
            for problem in (inside, "What is 3 + 4?")
        )
        assert ("problem and steps are in it." in known, "←" in known) == (True, True)
        assert ("not all in it: in place of its scores" in unknown, "←" in unknown) == (True, False)
        for command in (["vote", "--strategy", "prm"], ["compare"]):
            voted = run(running, *command, stdin=json.dumps(request(boxed(7), boxed(8)))).output
            assert "in place of its scores" in voted


def test_at_a_risk_it_is_said_whether_an_answer_is_accepted(tmp_path: Path) -> None:
    sure, alone = ([given("7", 0.9)] * count for count in (3, 1))
    with serving(vote_calibration=calibration(tmp_path)) as running:
        said = [run(running, "vote", "--risk", "0.05", stdin=json.dumps(request(*each))) for each in (sure, alone)]
        compared = run(running, "compare", "--risk", "0.05", stdin=json.dumps(request(*sure)))
    assert "decided by unanimous, accepted" in said[0].output
    assert ", not accepted" in said[1].output
    assert ", accepted" in compared.output


def test_the_default_vote_is_the_server_s() -> None:
    body = json.dumps(request(boxed(7), boxed(8)))
    for demo, strategy in ((True, "majority"), (False, "wrf")):
        with serving(FakeEngine(demo=demo)) as running:
            assert run(running, "vote", stdin=body).output.startswith(f"{strategy} elects ")


def test_a_server_that_is_away_is_named() -> None:
    result = CliRunner().invoke(app, ["score", "--url", "http://127.0.0.1:9"], json.dumps(request("a")))
    assert result.exit_code == 1
    assert result.stderr.startswith("request 1: the server at http://127.0.0.1:9 can't be reached: ")
    assert result.stderr.endswith("; start it with `unprm serve`, or name another by --url\n")


def test_a_vote_is_shown_as_a_table(server: Running) -> None:
    body = request(given("7", 0.9), given("8", 0.4), given("7", 0.7))
    result = run(server, "vote", "--strategy", "weighted", stdin=json.dumps(body))
    assert rows(result) == [["7", "2", "0.800", "0.900", "1.600"], ["8", "1", "0.400", "0.400", "0.400"]]
    assert "weighted elects 7, decided by combined" in result.output


def test_ties_are_told(server: Running) -> None:
    result = run(server, "vote", "--strategy", "majority", stdin=json.dumps(request(given("7", 0.9), given("8", 0.4))))
    assert "a tie" in result.output


def test_one_readable_candidate_is_not_unanimous(server: Running) -> None:
    body = json.dumps(request(boxed(7), ["I can't tell."], ["nothing"]))
    said = run(server, "vote", stdin=body).output
    assert "decided by only_answer" in said
    for output in (said, run(server, "compare", stdin=body).output):
        assert "2 of 3 candidates state no answer" in output


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
        ("[1]", "line 1: Input should be an object"),
        ('{"problem": "p"}\n{"problem', "line 2: Invalid JSON: EOF"),
        ("[" * 100_000, "line 1: Invalid JSON: recursion limit exceeded"),
        ('{"problem": "p"}\n' + '{"problem":' * 100_000, "line 2: Invalid JSON: recursion limit exceeded"),
        (r'{"problem": "\ud800"}', "line 1: Invalid JSON: "),
        ('{"problem": "p"}\n3\n', "line 2: Input should be an object"),
    ],
)
def test_what_is_no_request_is_told(server: Running, stdin: str, reason: str) -> None:
    result = run(server, "score", stdin=stdin)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.replace("│", " ").split())


def test_a_file_that_is_not_there_is_told(server: Running, tmp_path: Path) -> None:
    result = run(server, "score", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 2
    assert "No such file or directory" in " ".join(result.stderr.replace("│", " ").split())


def test_a_file_that_is_no_text_is_told(server: Running, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    result = run(server, "score", str(tmp_path / "picture"))
    assert result.exit_code == 2
    assert "can't decode byte" in " ".join(result.stderr.replace("│", " ").split())


def test_hostile_text_stays_text(server: Running) -> None:
    solution = {"id": HOSTILE, "steps": [HOSTILE], "answer": HOSTILE, "step_scores": [0.2]}
    for command in ("score", "vote", "compare"):
        result = run(server, command, stdin=json.dumps(request(solution)))
        assert result.exit_code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(result.output)
        assert "[bold]b[/bold]" in result.output


def test_a_vote_without_scores_is_shown(server: Running) -> None:
    result = run(server, "vote", "--strategy", "majority", stdin=json.dumps(request(boxed(1), boxed(1), boxed(2))))
    assert rows(result) == [["1", "2", "", "", "2.000"], ["2", "1", "", "", "1.000"]]


def test_key_and_address_may_be_variables(server: Running) -> None:
    environment = {"UNPRM_CLIENT_URL": server.url, "UNPRM_CLIENT_KEY": "k"}
    result = CliRunner().invoke(app, ["score", "--json"], json.dumps(request("a")), env=environment)
    assert result.exit_code == 0
    assert json.loads(result.output)["model"] == "fake"


def test_how_a_key_is_given_is_told() -> None:
    with serving(api_key="a-key-of-the-server") as running:
        refused = run(running, "vote", stdin=json.dumps(request(given("7", 0.9), given("7", 0.8))))
        assert (refused.exit_code, "by --key, or UNPRM_CLIENT_KEY" in refused.output) == (1, True)
