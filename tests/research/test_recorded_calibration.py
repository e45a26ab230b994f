"""Calibrations of recorded scores: the shipped file is what the command makes, and says where they do harm."""

import json
import math
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from research import recorded_calibration, recorded_scores
from research.__main__ import app
from research.recorded_calibration import EDGE
from tests.support import TEST_DATA
from training.evaluate.processbench import figures
from unprm.calibration import Calibration
from unprm.errors import RecordInvalid
from unprm.formats import recorded

DATA = TEST_DATA / "recorded"
GSM8K, MATH = (DATA / f"prm_scores_processbench_{name}.jsonl.gz" for name in ("gsm8k", "math"))
SHIPPED = Path(recorded.__file__).with_name(recorded.NAME)


def _run(*arguments):
    return CliRunner(env={"COLUMNS": "250"}).invoke(app, ["calibrate-recorded", *map(str, arguments)])


def _sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_the_shipped_file_is_what_the_command_makes(tmp_path):
    source = json.loads(SHIPPED.read_text("utf-8"))["source"]
    for part in ("psunlpgroup/FoVer", "CC-BY-4.0", "Apache-2.0"):
        assert part in source
    done = _run(GSM8K, "--test", MATH, "--source", source, "--output", tmp_path / "made.json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "made.json").read_text("utf-8") == SHIPPED.read_text("utf-8")
    rows = [line.split("│") for line in done.output.splitlines() if line.startswith("│")]
    assert [row[-2].strip() for row in rows if row[2].strip() == "math"] == [
        "calibration", "calibration, F1", "", "calibration", "calibration, F1",
    ]  # fmt: skip


def test_the_numbers_do_what_the_file_says():
    subsets = recorded_scores.read([GSM8K, MATH])
    shipped = recorded.read()
    assert shipped["fitted_on"] == {"subset": "gsm8k", "solutions": 250, "steps": 1000, "wrong_steps": 123}
    assert shipped["tested_on"] == {"subset": "math", "solutions": 250, "steps": 1102, "wrong_steps": 150}
    for name, model in shipped["models"].items():
        found = recorded.find(name)
        for subset, samples in subsets.items():
            scores = recorded_scores.scores_of(name.rpartition("/")[2], samples)
            served = {key: tuple(map(found.calibration, values)) for key, values in scores.items()}
            f1 = model["subsets"][subset]["f1"]
            assert figures(samples, scores, 0.5).f1 == pytest.approx(f1["at_half"], abs=1e-4)
            assert figures(samples, served, found.threshold).f1 == pytest.approx(f1["at_threshold"], abs=1e-4)


def test_a_calibration_is_of_the_steps_up_to_the_first_error_and_scores_of_1_have_finite_odds(tmp_path):
    """Rounded scores whose labels follow a known calibration; what comes after an error is noise."""
    rng, true = random.Random(0), Calibration(0.8, -0.4)
    rows = []
    for number in range(1500):
        raw = [_sigmoid(rng.uniform(-3, 12)) for _ in range(4)]
        wrong = next((k for k, score in enumerate(raw) if rng.random() > true(score)), -1)
        scores = [round(score * 256) / 256 if k <= wrong or wrong < 0 else 0.999 for k, score in enumerate(raw)]
        rows.append({"id": f"gsm8k-{number}", "label": wrong, "scores": {"m": scores}})
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (found,) = recorded_calibration.fit_all(recorded_scores.read([path]), "x").values()
    assert EDGE == 1 / 512
    assert found.calibration.scale == pytest.approx(true.scale, abs=0.12)
    assert found.calibration.shift == pytest.approx(true.shift, abs=0.2)
    assert found.calibrated_threshold == pytest.approx(found.calibration(found.threshold), abs=1e-4)


def test_scores_that_are_higher_for_wrong_steps_are_refused(tmp_path):
    scores = [0.9, 0.2, 0.9, 0.2, 0.9, 0.2, 0.2, 0.9]
    rows = [{"id": f"gsm8k-{k}", "label": -(k % 2), "scores": {"m": [score]}} for k, score in enumerate(scores)]
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(RecordInvalid, match="m scores right steps no higher than wrong ones"):
        recorded_calibration.fit_all(recorded_scores.read([path]), str(path))


def test_a_file_says_where_its_numbers_are_from(tmp_path):
    refused = _run(GSM8K, "--test", MATH, "--output", tmp_path / "made.json")
    assert refused.exit_code == 2
    assert "give --source" in refused.output
    assert not (tmp_path / "made.json").exists()
