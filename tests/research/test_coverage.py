"""How many elected answers are accepted at a risk, and what asking a large model for the others gains."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from research.coverage import RISKS, VoteElections, measure, of_models
from tests.support import tables
from training.evaluate.records import JudgedCandidates
from training.schema import to_line
from unprm.errors import RecordInvalid


def _pool(right: int, wrong: int = 0, candidates: float = 4) -> VoteElections:
    rows = [(1.0, True)] * right + [(1.0, False)] * wrong
    return VoteElections.from_elections(rows, [[candidates, 1.0, None]] * len(rows))


RIGHT, HALF_WRONG = _pool(200), _pool(100, 100)


def test_right_answers_are_all_accepted_and_answers_that_are_half_wrong_not_at_all():
    right, wrong = measure(RIGHT, RIGHT, 0.05), measure(HALF_WRONG, HALF_WRONG, 0.05)
    assert (right.accepted, right.wrong.mean, right.above, right.outside) == (1, 0, 0, 0)
    assert (wrong.accepted, wrong.wrong.mean, wrong.above) == (0, 0, 0)


def test_a_risk_kept_on_one_pool_is_broken_on_a_harder_one():
    found = measure(RIGHT, HALF_WRONG, 0.05)
    assert (found.accepted, found.above) == (1, 1)
    assert found.wrong.low < 0.5 < found.wrong.high
    assert found.wrong.mean == pytest.approx(0.5, abs=0.02)


def test_candidates_beyond_the_ranges_are_not_accepted():
    found = measure(RIGHT, _pool(100, 100, candidates=5), 0.05)
    assert (found.accepted, found.outside) == (0, 1)


def test_the_command_judges_each_pool_by_every_pool(tmp_path):
    for name, right in (("easy", 80), ("hard", 40)):
        rows = [JudgedCandidates(f"{k:02}", (0, 0), (k < right,) * 2, (0.9, 0.9)) for k in range(80)]
        rows.append(JudgedCandidates("unanswered", (None, None), (False, False), (0.9, 0.9)))
        (tmp_path / name).mkdir()
        (tmp_path / name / "candidates.jsonl").write_text("".join(map(to_line, rows)), "utf-8")
    pools, output = [str(tmp_path / name) for name in ("easy", "hard")], tmp_path / "made"
    result = CliRunner().invoke(app, ["coverage", *pools, "--output", str(output)])
    assert result.exit_code == 0, result.output
    table = (output / "coverage.md").read_text("utf-8")
    assert "| easy | easy | majority | 0.0 | 10 | 100.0 | 0.0 (0.0–0.0) | 0.0 | 0.0 |" in table
    assert "| hard | hard | majority | 50.0 | 10 | 0.0 | – | 0.0 | 0.0 |" in table
    assert "| hard | easy | majority | 50.0 | 10 | 100.0 |" in table
    assert table.count("| majority |") == 4 * len(RISKS)
    assert (output / "coverage.png").read_bytes().startswith(b"\x89PNG")


MODELS = ("a", "b", "c", "large")


def _answers(path: Path, questions: int) -> Path:
    """In a quarter of the questions one of three small models is right, elsewhere all; the large one always is."""
    rows: list[dict[str, Any]] = []
    for number in range(questions):
        preds = ["1", "2", "7", "7"] if number % 4 == 0 else ["7"] * 4
        answers = [{"model": name, "text": "x" * 10, "pred": pred} for name, pred in zip(MODELS, preds, strict=True)]
        rows.append({"id": f"q{number}", "problem": "p", "answer": "7", "candidates": answers})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def test_answers_of_many_models_make_a_pool_without_rewards(tmp_path):
    file = _answers(tmp_path / "many.jsonl", 80)
    result = CliRunner().invoke(app, ["coverage", str(file), "--output", str(tmp_path / "made"), "--candidates", "3"])
    assert result.exit_code == 0, result.output
    table = (tmp_path / "made" / "coverage.md").read_text("utf-8")
    assert table.count("| many | many | majority |") == table.count("| many |") == len(RISKS)
    with pytest.raises(RecordInvalid, match="no answer of d"):
        of_models(file, ["a", "d"])


def test_the_large_model_answers_where_the_small_ones_are_not_accepted(tmp_path):
    file, output = _answers(tmp_path / "many.jsonl", 240), tmp_path / "made"
    small = [part for name in "abc" for part in ("--small", f"{name}=1")]
    result = CliRunner().invoke(app, ["escalation", str(file), *small, "--large", "large=30", "--output", str(output)])
    assert result.exit_code == 0, result.output
    (rows,) = tables((output / "escalation.md").read_text("utf-8"))
    cells = {rule: others for rule, *others in (row.values() for row in rows)}
    assert cells["never"][2] == "100.0"
    assert cells["always"][:1] == ["0.0"]
    for rule in ("100 % agree", "at a risk of 5 %"):
        asked, right, cost, lot, wrong = cells[rule]
        assert (right, wrong) == ("100.0 (100.0–100.0)", "0.0 (0.0–0.0)")
        assert 15 < float(asked) < 35
        assert float(cost) == pytest.approx(float(asked) + 10, abs=0.11)
        assert float(lot) < 95
    assert (output / "escalation.png").exists()


def test_a_question_without_rewards_is_left_out_of_votes_by_rewards():
    scored, unscored = (JudgedCandidates(str(reward), (0, 1), (True, False), (reward,) * 2) for reward in (0.5, None))
    assert len(VoteElections.of([scored, unscored], "prm").right) == 1
    assert len(VoteElections.of([scored, unscored], "majority").right) == 2
