"""How many elected answers are accepted at a risk."""

import json

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from research.coverage import RISKS, VoteElections, measure
from training.evaluate.judging import JudgedCandidates
from training.schema import to_line


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


def test_answers_of_many_models_make_a_pool_without_rewards(tmp_path):
    """In a quarter of the questions two of four models are right, elsewhere all."""
    file = tmp_path / "many.jsonl"
    answers = [["1", "2", "7", "7"], ["7"] * 4, ["7"] * 4, ["7"] * 4] * 20
    rows = [
        {"id": f"q{k}", "problem": "p", "answer": "7", "candidates": [{"text": "x", "pred": each} for each in preds]}
        for k, preds in enumerate(answers)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    result = CliRunner().invoke(app, ["coverage", str(file), "--output", str(tmp_path / "made"), "--candidates", "3"])
    assert result.exit_code == 0, result.output
    table = (tmp_path / "made" / "coverage.md").read_text("utf-8")
    assert table.count("| many | many | majority |") == table.count("| many |") == len(RISKS)


def test_a_question_without_rewards_is_left_out_of_votes_by_rewards():
    scored, unscored = (JudgedCandidates(str(reward), (0, 1), (True, False), (reward,) * 2) for reward in (0.5, None))
    assert len(VoteElections.of([scored, unscored], "prm").right) == 1
    assert len(VoteElections.of([scored, unscored], "majority").right) == 2
