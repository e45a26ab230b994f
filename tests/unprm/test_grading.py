"""`unprm grade`: what it reads, prints and returns."""

import json
from pathlib import Path

from typer.testing import CliRunner

from unprm.grading import app


def test_answers_are_graded_without_a_server(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    pairs = [
        {"id": "a", "text": "It is \\boxed{0.5}.", "gold": ["1/3", "1/2"]},
        {"gold": "7"},
        {"answer": "6", "gold": "7"},
    ]
    file.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    result = CliRunner().invoke(app, [str(file)])
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"id": "a", "correct": True, "answer": "0.5", "compared_as_text": False},
        {"id": None, "correct": False, "answer": None, "compared_as_text": False},
        {"id": None, "correct": False, "answer": "6", "compared_as_text": False},
    ]
    assert result.stderr == "1 of 3 right, 1 without an answer\n"
    assert CliRunner().invoke(app, [], json.dumps(pairs[0])).stderr == "1 of 1 right, 0 without an answer\n"


def test_what_is_no_pair_is_named() -> None:
    lines = json.dumps({"answer": "1", "gold": "1"}) + '\n{"answer": "1"}\n'
    result = CliRunner().invoke(app, [], lines)
    assert result.exit_code == 2
    assert "line 2: /gold: Field required" in result.output
