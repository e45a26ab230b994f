"""Calibration: recovered where it is known, written where the server reads it."""

import random
from contextlib import closing

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from tests.judge_server import judging
from tests.server.harness import serving
from training import resumable
from training.__main__ import app
from training.layouts.files import read_labelled
from training.prm.calibrate import calibrate
from training.schema import LabelledSolution
from unprm.calibration import NAME, Calibration, log_odds
from unprm.errors import ModelInvalid, RecordInvalid
from unprm.models.load import load_engine

TRUE = Calibration(scale=0.5, shift=-1.0)


class Known:
    """Scores that were drawn beforehand; a solution's first step tells which."""

    name = "known"

    def __init__(self, scores):
        self.scores = scores

    def score(self, batch):
        return [self.scores[int(solution.steps[0])] for solution in batch]


def _drawn(tmp_path, count):
    """Solutions whose steps are right as often as the true calibration of their scores says."""
    rng = random.Random(0)
    scores = [tuple(rng.random() for _ in range(4)) for _ in range(count)]
    solutions = [
        LabelledSolution("p", (str(k), "b", "c", "d"), tuple(rng.random() < TRUE(score) for score in step_scores))
        for k, step_scores in enumerate(scores)
    ]
    resumable.write_lines(tmp_path / "data.jsonl", solutions)
    return scores


def test_a_known_calibration_is_found(tmp_path):
    scores = _drawn(tmp_path, 5000)
    found = calibrate(Known(scores), tmp_path / "data.jsonl", Progress(disable=True))
    assert found.steps == 20000
    assert found.calibration.scale == pytest.approx(TRUE.scale, abs=0.05)
    assert found.calibration.shift == pytest.approx(TRUE.shift, abs=0.05)
    assert found.after.calibration_error < 0.02 < 0.1 < found.before.calibration_error
    assert found.after.auroc == pytest.approx(found.before.auroc)


def test_solutions_that_do_not_fit_are_left_out(tmp_path):
    scores = [*_drawn(tmp_path, 300)]
    short = calibrate(Known([None, *scores[1:]]), tmp_path / "data.jsonl", Progress(disable=True))
    assert short.steps == 299 * 4


def test_steps_that_are_all_right_are_refused(tmp_path):
    resumable.write_lines(tmp_path / "data.jsonl", [LabelledSolution("p", ("0",), (True,))])
    with pytest.raises(RecordInvalid, match="right steps and wrong ones"):
        calibrate(Known([(0.5,)]), tmp_path / "data.jsonl", Progress(disable=True))


def test_steps_without_a_label_are_left_out_and_soft_labels_are_verdicts(tmp_path):
    scores = _drawn(tmp_path, 300)
    plain = calibrate(Known(scores), tmp_path / "data.jsonl", Progress(disable=True))
    soft = [
        LabelledSolution(s.problem, (*s.steps, "e"), (*(0.6 if label else 0.5 for label in s.labels), None))
        for s in read_labelled([tmp_path / "data.jsonl"])
    ]
    resumable.write_lines(tmp_path / "soft.jsonl", soft)
    found = calibrate(Known([(*each, 0.9) for each in scores]), tmp_path / "soft.jsonl", Progress(disable=True))
    assert found == plain


@pytest.mark.parametrize("score", [0.0, 1e-12, 0.3, 0.5, 1.0])
def test_a_calibrated_score_is_a_probability(score):
    assert Calibration()(score) == pytest.approx(score, abs=1e-8)
    assert 0 <= Calibration(40.0, -3.0)(score) <= 1
    assert abs(log_odds(score)) < 25


def test_the_command_writes_what_the_engine_reads(adapter, tmp_path):
    import shutil

    shutil.copytree(adapter.parent, tmp_path / "models")
    place = tmp_path / "models" / adapter.name
    assert load_engine(str(place), device="cpu").description.calibration == Calibration()
    solutions = [LabelledSolution("what is 12 + 34 ?", ("12 + 34 = 46 .", "46"), (True, k % 2 > 0)) for k in range(8)]
    resumable.write_lines(tmp_path / "data.jsonl", solutions)
    done = CliRunner().invoke(app, ["calibrate", "--model", str(place), "--data", str(tmp_path / "data.jsonl")])
    assert done.exit_code == 0, done.output
    calibration = load_engine(str(place), device="cpu").description.calibration
    assert calibration == Calibration.read(place) != Calibration()
    (place / NAME).write_text('{"scale": "much"}')
    with pytest.raises(ModelInvalid, match="not a calibration of scale and shift"):
        load_engine(str(place), device="cpu")


def test_a_judge_is_calibrated_through_its_server(tmp_path):
    """It gives true sums 0.9, of which eight in ten are right steps, and the others 0.2, of which one in ten is."""
    steps = [("1 + 1 = 2", k < 8) for k in range(10)] + [("1 + 1 = 3", k < 1) for k in range(10)]
    resumable.write_lines(tmp_path / "data.jsonl", [LabelledSolution("p", (step,), (right,)) for step, right in steps])
    with judging() as judge, serving(judge.load()) as running:
        options = ["--server", running.url, "--data", str(tmp_path / "data.jsonl"), "--output", str(tmp_path)]
        done = CliRunner().invoke(app, ["calibrate", *options])
        assert done.exit_code == 0, done.output
        with closing(judge.load(judge_calibration=tmp_path)) as calibrated:
            calibration = calibrated.description.calibration
    assert (calibration(0.9), calibration(0.2)) == (pytest.approx(0.8, abs=1e-3), pytest.approx(0.1, abs=1e-3))


def test_a_model_that_is_no_directory_needs_a_place_to_write_to(tmp_path):
    resumable.write_lines(tmp_path / "data.jsonl", [LabelledSolution("p", ("0",), (True,))])
    done = CliRunner().invoke(app, ["calibrate", "--model", "org/prm", "--data", str(tmp_path / "data.jsonl")])
    assert done.exit_code == 2
    assert "--output" in done.output
