"""A threshold from a few labelled solutions: on recorded scores of published PRMs, and over HTTP."""

import json
import random

import pytest
from typer.testing import CliRunner

from research import recorded_scores
from tests.server.harness import serving
from tests.support import TEST_DATA
from tests.tiny import write_prm
from training.cli.evaluate import app
from training.evaluate.processbench import figures
from training.prm import calibrate
from unprm.calibration import Calibration
from unprm.errors import ModelInvalid, RecordInvalid
from unprm.models.load import load_engine


@pytest.fixture(scope="module")
def solutions():
    return recorded_scores.read([TEST_DATA / "recorded"])["gsm8k"]


def _chosen(solutions, model, count, seed):
    """The threshold from `count` of the solutions, and F1 of the others at it, and at 0.5."""
    (name,) = (name for name in solutions[0].scores if model in name)
    drawn = random.Random(seed).sample(solutions, count)
    chosen = calibrate.choose_threshold([each.first_error for each in drawn], [each.scores[name] for each in drawn])
    rest = [each for each in solutions if each not in drawn]
    scores = {each.id: each.scores[name] for each in rest}
    return chosen, *(figures(rest, scores, level).f1 for level in (chosen.threshold, 0.5))


@pytest.mark.parametrize(("model", "gained"), [("PRM-Deepseek", 0.25), ("PRM-Mistral", 0.15)])
def test_a_prm_that_hardly_objects_gains(solutions, model, gained):
    tried = [_chosen(solutions, model, 100, seed) for seed in range(6)]
    assert sum(chosen.gain.low > 0 for chosen, _, _ in tried) >= 5
    assert all(after - before > gained for chosen, after, before in tried if chosen.gain.low > 0)
    few = [_chosen(solutions, model, 20, seed) for seed in range(6)]
    assert sum(after for _, after, _ in few) > sum(before for _, _, before in few) + 6 * gained / 2


def test_a_prm_that_is_right_at_0_5_is_left_there(solutions):
    tried = [_chosen(solutions, "Qwen2.5-Math-PRM-7B", count, seed) for count in (20, 50, 100) for seed in range(4)]
    assert not any(chosen.gain.low > 0 for chosen, _, _ in tried)


def test_few_traces_or_of_one_kind_are_refused():
    scores = [(0.9, 0.2)] * 30
    with pytest.raises(RecordInvalid, match=r"a threshold takes 20 traces.*: there are 19, 9 with an error"):
        calibrate.choose_threshold([1] * 9 + [None] * 10, scores[:19])
    with pytest.raises(RecordInvalid, match="there are 30, 2 with an error"):
        calibrate.choose_threshold([1] * 2 + [None] * 28, scores)


def test_traces_have_labels_up_to_their_first_errors(tmp_path):
    place = tmp_path / "traces.jsonl"
    labels = [True, False, None], [True, True], [None, False], [True, None]
    lines = [{"problem": "1?", "steps": ["a"] * len(each), "labels": each} for each in labels]
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [first for _, first in calibrate.read_traces(place)] == [1, None]


def test_it_is_saved_where_the_server_reads_it(tmp_path):
    place = write_prm(tmp_path / "prm", "prm")
    request = {"problem": "1 + 1?", "solutions": [["It is 2.", "So 2."]]}

    def scored(**changed):
        with serving(load_engine(str(place), device="cpu")) as running:
            (solution,) = running.post("/score_steps", request | changed).json()["solutions"]
        return solution

    before = scored()
    Calibration(scale=0.5, threshold=max(before["step_scores"]) + 0.01).write(place)
    now = scored()
    assert now["step_scores"] == before["step_scores"]  # the scale is for means with other models
    assert (now["first_error"], scored(threshold=0.0)["first_error"]) == (0, None)
    (place / "calibration.json").write_text('{"threshold": "high"}')
    with pytest.raises(ModelInvalid, match="scale, shift and threshold"):
        Calibration.read(place)


def test_the_command_sets_it_or_refuses(tmp_path, monkeypatch):
    place = write_prm(tmp_path / "prm", "prm")
    data = tmp_path / "traces.jsonl"
    rows = [{"problem": f"{k}?", "steps": ["a", "b"], "labels": [True, k % 2 == 0]} for k in range(30)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["threshold", "--model", str(place), "--data", str(data)]

    def wrong_at(score):
        scores = [(0.9, 0.8 if k % 2 == 0 else score) for k in range(30)]
        monkeypatch.setattr("training.evaluate.scorers.EngineScorer.score", lambda self, batch: scores)

    wrong_at(0.4)
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "it is not known to help" in refused.output
    assert not (place / "calibration.json").exists()
    wrong_at(0.6)
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    assert "F1 of first errors 0.0 % at 0.5, +100.0 [+100.0, +100.0] points" in made.output
    assert 0.6 < Calibration.read(place).threshold <= 0.8
