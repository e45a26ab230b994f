"""The read-out of surprisals: fitted to steps whose labels follow it, and tested on others."""

import json
import random

import pytest
from typer.testing import CliRunner

from research import uncertainty
from research.__main__ import app
from unprm.engines.uncertainty import Readout
from unprm.errors import RecordInvalid

TRUE = Readout(intercept=3.0, mean=0.0, largest=0.0, total=-1.0, top3=0.0, fitted="nothing")


def steps(count, seed):
    """Solutions of two steps of ten tokens, the second one labelled as often right as the true read-out says."""
    draw = random.Random(seed)
    for number in range(count):
        for place in range(2):
            logprobs = [-draw.expovariate(1 / (0.05 if place == 0 else draw.choice([0.2, 4.0]))) for _ in range(10)]
            label = place == 0 or draw.random() < TRUE.score(logprobs)
            yield {"id": str(number), "problem": str(number % 40), "characters": 40, "label": label,
                   "token_logprobs": logprobs}  # fmt: skip


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_it_is_fitted_to_labels_and_tells_right_steps_from_wrong_ones(tmp_path):
    train, test = written(tmp_path / "a.jsonl", steps(400, 1)), written(tmp_path / "b.jsonl", steps(200, 2))
    readout = uncertainty.fit(uncertainty.read(train), "400 solutions")
    assert readout.fitted == "400 solutions"
    assert readout.score([-0.1] * 10) > 0.8 > 0.5 > readout.score([-6.0] * 10)
    tested = uncertainty.test(readout, uncertainty.read(test))
    assert tested.loss < tested.constant
    assert 0.5 < tested.low < tested.matched < tested.high
    shown = CliRunner().invoke(app, ["uncertainty", str(train), "--test", str(test)])
    assert shown.exit_code == 0
    assert "matched" in shown.output


def test_right_steps_alone_are_not_enough(tmp_path):
    rows = [row for row in steps(9, 1) if row["label"]]
    with pytest.raises(RecordInvalid, match="right steps and wrong ones"):
        uncertainty.read(written(tmp_path / "a.jsonl", rows))
