"""The command that calibrates which elected answers are accepted."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from training.cli.evaluate import app
from training.evaluate.acceptance import elections
from training.evaluate.judging import GIVEN, JudgedCandidates
from training.schema import to_line
from unprm.election import acceptance
from unprm.votes.registry import DEFAULTS


def _question(number: int, sure: bool) -> JudgedCandidates:
    """Sure: three agree on the right answer. Otherwise two of three on a wrong one."""
    classes = (0, 0, 0) if sure else (1, 1, 0)
    return JudgedCandidates(f"q{number}", classes, tuple(name == 0 for name in classes), (0.9, 0.9, 0.9))


def _run(directory: Path, rows: Sequence[JudgedCandidates], model: str = GIVEN) -> Path:
    (directory / "candidates.jsonl").write_text("".join(map(to_line, rows)), "utf-8")
    (directory / "candidates.config.json").write_text(json.dumps({"model": model}), "utf-8")
    return directory


def _calibrate(run: Path, *options: str) -> Any:
    output = ["--output", str(run / "calibration.json")]
    return CliRunner().invoke(app, ["calibrate-votes", str(run), *output, *options])


def test_an_election_has_its_certainty_and_whether_it_is_right():
    judged = [_question(0, True), _question(1, False)]
    assert elections(judged, "majority") == [(1.0, True), (pytest.approx(2 / 3), False)]
    # rewards count where the vote needs them: not if all agree
    assert elections(judged, "weighted") == [(1.0, True), (pytest.approx(2 / 3 * 0.9), False)]


def test_a_question_of_which_no_candidate_with_an_answer_has_a_reward_is_left_out():
    unscored = JudgedCandidates("q", (0, 1, None), (True, False, False), (None, None, 0.9))
    assert elections([unscored], "majority") == [(pytest.approx(1 / 3), True)]
    assert elections([unscored], "wrf") == []


def test_what_is_calibrated_is_what_a_server_reads(tmp_path):
    rows = [_question(number, number < 60) for number in range(70)]
    unanswered = JudgedCandidates("none", (None, None, None), (False,) * 3, (0.5,) * 3)
    result = _calibrate(_run(tmp_path, [*rows, unanswered]))
    assert result.exit_code == 0, result.output
    assert "majority: at a risk of 5 %, 60 of 70 answers are accepted" in result.output
    made = acceptance.read(tmp_path / "calibration.json")
    assert (made.pool, made.confidence, made.terms) == (tmp_path.name, acceptance.CONFIDENCE, DEFAULTS.model_dump())
    assert (made.threshold("majority", 0.05), made.threshold("majority", 0.5)) == (1.0, pytest.approx(2 / 3))
    assert made.ranges == {"candidates": (3, 3), "share": (pytest.approx(2 / 3), 1), "highest_reward": (0.9, 0.9)}
    assert "cisc" not in made.elections


def test_a_vote_whose_surer_answers_are_wrong_is_said_to_be_uncalibrated(tmp_path):
    rows = [replace(_question(number, number < 40), correct=(number >= 40,) * 3) for number in range(80)]
    result = _calibrate(_run(tmp_path, rows))
    assert result.exit_code == 0, result.output
    assert (
        "majority is not calibrated: its answers of lower certainty are more often right (100 % of 40" in result.output
    )
    made = acceptance.read(tmp_path / "calibration.json")
    assert "can't be relied on for majority" in made.mismatch("majority", DEFAULTS, None, "min")


SCORED = [replace(_question(number, True), scores=((0.9, 0.5),) * 3) for number in range(2)]


@pytest.mark.parametrize(
    ("rows", "model", "options", "expected"),
    [
        ([_question(0, True), _question(1, True)], GIVEN, [], (None, None, 0.9)),
        ([_question(0, True), _question(1, True)], GIVEN, ["--model", "served"], ("served", None, 0.9)),
        (SCORED, "a PRM", [], ("a PRM", "min", 0.5)),
        (SCORED, "a PRM", ["--aggregate", "mean"], ("a PRM", "mean", 0.7)),
    ],
)
def test_a_calibration_tells_what_its_rewards_are(tmp_path, rows, model, options, expected):
    assert _calibrate(_run(tmp_path, rows, model), *options).exit_code == 0
    made = acceptance.read(tmp_path / "calibration.json")
    assert (made.model, made.aggregate, made.ranges["highest_reward"][0]) == expected


@pytest.mark.parametrize(
    ("rows", "options", "detail"),
    [
        (
            [JudgedCandidates(name, (None,), (False,), (0.5,)) for name in "ab"],
            [],
            "no candidate of any question states",
        ),
        ([_question(0, True), _question(1, True)], ["--aggregate", "mean"], "its rewards are numbers"),
    ],
)
def test_a_pool_that_cannot_be_calibrated_is_refused(tmp_path, rows, options, detail):
    assert detail in str(_calibrate(_run(tmp_path, rows), *options).exception)


def test_elections_stop_as_those_of_a_gateway(tmp_path):
    """Four of four agree, which is enough; else all eight are sampled, whose majority may be another."""
    early = JudgedCandidates("a", (0,) * 4 + (1,) * 4, (True,) * 4 + (False,) * 4, (None,) * 8)
    late = JudgedCandidates("b", (0, 0, 1, 2, 1, 1, 1, 1), (True, True) + (False,) * 6, (None,) * 8)
    rows = [replace(row, id=f"{row.id}{number}") for number in range(30) for row in (early, late)]
    result = _calibrate(_run(tmp_path, rows), "--stable", "0.95")
    assert result.exit_code == 0, result.output
    made = acceptance.read(tmp_path / "calibration.json")
    assert made.ranges["candidates"] == (4, 8)
    assert sorted(set(made.elections["majority"])) == [(5 / 8, False), (1.0, True)]
    assert {name: made.terms[name] for name in acceptance.STOPPING} == {"stable": 0.95, "round": 4}
    assert _calibrate(_run(tmp_path, rows)).exit_code == 0
    whole = acceptance.read(tmp_path / "calibration.json")
    assert (whole.ranges["candidates"], set(whole.elections["majority"])) == ((8, 8), {(0.5, True), (5 / 8, False)})


def test_too_few_questions_are_told(tmp_path):
    result = _calibrate(_run(tmp_path, [_question(number, True) for number in range(40)]))
    assert "at a risk of 5 %, 0 of 40 answers are accepted; that takes 45 questions or more" in result.output
    result = _calibrate(_run(tmp_path, [_question(number, True) for number in range(45)]))
    assert "at a risk of 5 %, 45 of 45 answers are accepted\n" in result.output
