"""How many elected answers are accepted at a risk, on pools whose outcome is known."""

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from research.coverage import RISKS, halves, transferred
from training.evaluate.records import JudgedCandidates
from training.schema import to_line

RIGHT = [(1.0, True)] * 200
HALF_WRONG = [(1.0, True)] * 100 + [(1.0, False)] * 100


def test_right_answers_are_all_accepted_and_answers_that_are_half_wrong_not_at_all():
    right, wrong = halves(RIGHT, 0.05), halves(HALF_WRONG, 0.05)
    assert (right.accepted, right.wrong, right.above) == (1, 0, 0)
    assert (wrong.accepted, wrong.wrong, wrong.above) == (0, 0, 0)


def test_a_risk_kept_on_one_pool_is_broken_on_a_harder_one():
    found = transferred(RIGHT, HALF_WRONG, 0.05)
    assert (found.accepted, found.above) == (1, 1)
    assert found.wrong == pytest.approx(0.5, abs=0.02)


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
    assert "| easy | easy | majority | 0.0 | 10 | 100.0 | 0.0 | 0.0 |" in table
    assert "| hard | hard | majority | 50.0 | 10 | 0.0 | 0.0 | 0.0 |" in table
    assert "| hard | easy | majority | 50.0 | 10 | 100.0 |" in table
    assert table.count("| majority |") == 4 * len(RISKS)
