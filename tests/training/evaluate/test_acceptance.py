"""The command that calibrates which elected answers are accepted."""

import pytest
from typer.testing import CliRunner

from training.cli.evaluate import app
from training.evaluate.acceptance import elections
from training.evaluate.records import JudgedCandidates
from training.schema import to_line
from unprm.election import acceptance


def _question(number: int, sure: bool) -> JudgedCandidates:
    """Sure: three agree on the right answer. Otherwise two of three on a wrong one."""
    classes = (0, 0, 0) if sure else (1, 1, 0)
    return JudgedCandidates(f"q{number}", classes, tuple(name == 0 for name in classes), (0.9, 0.9, 0.9))


def test_an_election_has_its_certainty_and_whether_it_is_right():
    judged = [_question(0, True), _question(1, False)]
    assert elections(judged, "majority") == [(1.0, True), (pytest.approx(2 / 3), False)]
    # rewards count where the vote needs them: not if all agree
    assert elections(judged, "weighted") == [(1.0, True), (pytest.approx(2 / 3 * 0.9), False)]


def test_what_is_calibrated_is_what_a_server_reads(tmp_path):
    rows = [_question(number, number < 60) for number in range(70)]
    unanswered = JudgedCandidates("none", (None, None, None), (False,) * 3, (0.5,) * 3)
    (tmp_path / "candidates.jsonl").write_text("".join(map(to_line, [*rows, unanswered])), "utf-8")
    output = tmp_path / "calibration.json"
    result = CliRunner().invoke(app, ["calibrate-votes", str(tmp_path), "--output", str(output), "--pool", "ours"])
    assert result.exit_code == 0, result.output
    assert "majority: at a risk of 5 %, 60 of 70 answers are accepted" in result.output
    made = acceptance.read(output)
    assert (made.pool, made.confidence) == ("ours", acceptance.CONFIDENCE)
    assert (made.threshold("majority", 0.05), made.threshold("majority", 0.5)) == (1.0, pytest.approx(2 / 3))
    assert made.ranges["classes"] == (1, 2)
    assert "cisc" not in made.elections


def test_a_pool_without_any_answer_is_refused(tmp_path):
    unanswered = [JudgedCandidates(name, (None,), (False,), (0.5,)) for name in "ab"]
    (tmp_path / "candidates.jsonl").write_text("".join(map(to_line, unanswered)), "utf-8")
    result = CliRunner().invoke(app, ["calibrate-votes", str(tmp_path), "--output", str(tmp_path / "made.json")])
    assert "no candidate of any question has an answer" in str(result.exception)
