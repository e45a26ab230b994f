"""Counts of rollouts: they reach the loss from what `annotate` wrote, and a model trained on them is served with
intervals."""

import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.progress import Progress
from scipy.stats import beta, betabinom
from typer.testing import CliRunner

from tests.fake_engine import FakeEngine, FakeFormat
from tests.server.harness import serving
from tests.training.solutions import annotated
from training import resumable
from training.__main__ import app
from training.data.merge import merge
from training.layouts.files import read_labelled
from training.prm import publish
from training.prm.collate import Example, micro_batches, read_examples
from training.prm.loss import LOSSES
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution, Trial
from unprm.calibration import sigmoid
from unprm.engines.torch.readers import scores_of
from unprm.errors import ModelInvalid, RecordInvalid
from unprm.formats.unprm import CONFIG_NAME, PrmConfig
from unprm.library import vote
from unprm.models.load import load_engine
from unprm.types import Encoded

LOSS = LOSSES["beta-binomial"]
PROBLEM = "Problem: what is 12?"
STEPS = ["Step 1: 3 is 46.", "Step 2: 4 is 5.", "Step 3: \\boxed{5}"]
OTHER = [STEPS[0], "Step 2: 1 is 46: \\boxed{46}"]


def _losses(outputs, counts):
    made = torch.tensor(outputs, dtype=torch.float, requires_grad=True)
    parts = LOSS.parts(made, torch.tensor(counts, dtype=torch.float), torch.zeros(len(counts)))
    parts.sum().backward()
    return parts.tolist(), made.grad


def test_the_loss_is_scipy_s_negative_log_likelihood():
    rng = random.Random(0)
    outputs = [(rng.uniform(-3, 5), rng.uniform(-3, 5)) for _ in range(60)]
    taken = [rng.randint(0, 64) for _ in outputs]
    counts = [(rng.randint(0, n), n) for n in taken]
    expected = [
        -betabinom.logpmf(k, n, np.exp(log_alpha), np.exp(log_beta))
        for (log_beta, log_alpha), (k, n) in zip(outputs, counts, strict=True)
    ]
    assert _losses(outputs, counts)[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_single_rollout_costs_the_cross_entropy_of_the_mean():
    labels = [1.0, 0.0, 0.3]
    found, gradient = _losses([(0.5, 2.0)] * 3, [(label, 1) for label in labels])
    margins = torch.full((3,), 1.5, requires_grad=True)
    crossed = LOSSES["bce"].parts(margins, torch.tensor(labels), torch.zeros(3))
    crossed.sum().backward()
    assert found[:2] == pytest.approx(crossed.tolist()[:2], rel=1e-5)
    assert gradient[:, 1].tolist() == pytest.approx(margins.grad.tolist(), abs=1e-6)


@pytest.mark.parametrize("size", [30.0, 200.0, 1e4])
def test_the_gradient_leads_back_from_any_extreme(size):
    outputs = [(size, -size), (-size, size), (size, size), (-size, -size)]
    parts, gradient = _losses(outputs, [(3, 8)] * 4)
    assert np.isfinite(parts).all()
    assert gradient.isfinite().all()
    margins = gradient[:, 1] - gradient[:, 0]
    assert margins[0] < -1 < 1 < margins[1]
    # as 3 of 8 is right: where the mean is fixed at a half, it falls; and where all rollouts should agree, they differ
    assert margins[2] == pytest.approx(2.0)
    assert gradient[3].sum() == pytest.approx(-1.0)


def _annotated(path):
    trials = (Trial(2, "p", 0.0, 16, 1, 9), Trial(1, "q", 0.0, 12, 5, 9))
    right = annotated(correct=True, labels=(True, True), problem="And?")
    solutions = [annotated(labels=(True, False, False), tried=0, steps=("So.", "Thus.", "Hence.")), right]
    resumable.write_lines(path, [replace(solutions[0], tried=trials), right])
    return path


@pytest.mark.parametrize("merged", [False, True])
def test_counts_of_annotated_solutions_reach_the_loss(tmp_path, merged):
    path = _annotated(tmp_path / "annotated.jsonl")
    if merged:
        resumable.config_path(path).write_text("{}")
        merge([path], tmp_path)
        path = tmp_path / "data" / "train.jsonl"
    examples, _ = read_examples([path], None, FakeFormat(), 100)
    assert [each.labels for each in examples] == [(True, False, False), (True, True)]
    assert [each.counts for each in examples] == [((5, 12), (1, 16), (False, 1)), ((True, 1), (True, 1))]
    for arranged in ({}, {"packing": True}, {"sharing": True}):
        (micro,) = micro_batches(examples, 1000, **arranged)
        places = {tuple(row) for row in torch.cat([micro.labels[:, None], micro.counts], 1).tolist()}
        assert places == {(1, 5, 12), (0, 1, 16), (0, 0, 1), (1, 1, 1)}


@pytest.mark.parametrize("changed", [{"step": 4}, {"step": 0}, {"correct": 17}, {"correct": -1}])
def test_counts_that_cannot_be_are_refused(tmp_path, changed):
    trial = replace(Trial(2, "p", 0.0, 16, 1, 9), **changed)
    wrong = annotated(labels=(True, False, False), steps=("So.", "Thus.", "Hence."))
    resumable.write_lines(tmp_path / "a.jsonl", [replace(wrong, tried=(trial,))])
    with pytest.raises(RecordInvalid, match="tried: a prefix"):
        list(read_labelled([tmp_path / "a.jsonl"]))


def _settings(base, place, **changed):
    rng = random.Random(0)
    rows = []
    for _ in range(48):
        good = [rng.random() < 0.6 for _ in range(rng.randint(1, 3))]
        steps = [f"Step {k}: {rng.randint(1, 4)} is {'46' if each else '5'}." for k, each in enumerate(good, 1)]
        labels = [all(good[: k + 1]) for k in range(len(good))]
        trials = [Trial(k, "p", 0.0, 8, 7 if each else rng.randint(0, 1), 9) for k, each in enumerate(labels, 1)]
        rows.append(LabelledSolution(PROBLEM, tuple(steps), tuple(labels), tried=tuple(trials)))
    resumable.write_lines(place / "steps.jsonl", rows)
    values = {"epochs": 4, "batch_size": 12, "learning_rate": 2e-2, "lora_dropout": 0.0, "head": "classes"}
    return TrainSettings(
        base=str(base),
        data=(place / "steps.jsonl",),
        output=place / "prm",
        **(values | {"loss": "beta-binomial"} | changed),
    )


@pytest.fixture(scope="module")
def trainer(base, tmp_path_factory):
    """One that has trained on counts."""
    trainer = Trainer(_settings(base, tmp_path_factory.mktemp("counts")))
    trainer.train(Progress(disable=True))
    return trainer


def _expected(trainer, steps):
    """Mean and both quantiles of each step, by the trainer's network and SciPy."""
    trainer.network.eval()
    encoded = trainer.format.encode(PROBLEM, steps)
    (micro,) = micro_batches([Example(encoded, (1.0,) * len(steps))], 1000)
    with torch.no_grad():
        log_beta, log_alpha = trainer.network(micro).double().numpy().T
    law = beta(np.exp(log_alpha), np.exp(log_beta))
    return law.mean(), np.minimum(law.ppf(0.05), law.mean()), np.maximum(law.ppf(0.95), law.mean())


@pytest.mark.parametrize("way", ["cached", "uncached", "merged"])
def test_a_model_trained_on_counts_is_served_with_intervals(trainer, tmp_path, way):
    place, options = trainer.settings.output, {"prefix_cache_gb": 0.01} if way == "cached" else {}
    if way == "merged":
        publish.merge_adapter(str(place), None, place := tmp_path / "merged", torch.float32)
    body = {"problem": PROBLEM, "solutions": [STEPS, OTHER, {"steps": STEPS, "step_scores": [0.5] * 3}]}
    requests = [body, {"problem": PROBLEM, "solutions": [STEPS[:1]]}, body]  # the third finds its steps cached
    with closing(load_engine(str(place), device="cpu", **options)) as engine, serving(engine) as running:
        first, _, again = (running.post("/score_steps", each).json()["solutions"] for each in requests)
        voted = running.post("/vote/prm", body | {"solutions": [STEPS, OTHER]}).json()["solutions"]
        inside = vote(PROBLEM, [STEPS, OTHER], "prm", prm=engine).solutions[0].model_dump()
    for solution, steps in (
        (first[0], STEPS),
        (first[1], OTHER),
        (again[0], STEPS),
        (voted[1], OTHER),
        (inside, STEPS),
    ):
        scores, lows, highs = _expected(trainer, steps)
        found = solution["step_intervals"]
        assert solution["step_scores"] == pytest.approx(scores, abs=1e-4)
        assert [each["low"] for each in found] == pytest.approx(lows, abs=1e-3)
        assert [each["high"] for each in found] == pytest.approx(highs, abs=1e-3)
        for score, each in zip(solution["step_scores"], found, strict=True):
            assert 0 <= each["low"] <= score <= each["high"] <= 1
            assert each["high"] - each["low"] > 0.01
    assert "step_intervals" not in first[2]
    assert PrmConfig.read(place).distribution == "beta"


def test_an_interval_holds_its_score_and_is_finite_at_any_extreme():
    margins = [[-300.0, 300.0], [300.0, -300.0], [-300.0, -300.0], [300.0, 300.0], [5.0, -5.0]]
    scores, *_, intervals = scores_of(Encoded((1,), (0,)), margins, 1)
    assert scores == tuple(sigmoid(log_alpha - log_beta) for log_beta, log_alpha in margins)
    assert all(0 <= each.low <= score <= each.high <= 1 for score, each in zip(scores, intervals, strict=True))
    # nearly all of its mass is at 0, and the 95 % quantile below the mean
    assert intervals[4].high == scores[4] > beta.ppf(0.95, np.exp(-5), np.exp(5))


def test_other_models_and_means_of_several_have_none(trainer, base, tmp_path):
    plain = Trainer(_settings(base, tmp_path, loss="bce", epochs=1))
    plain.train(Progress(disable=True))
    assert "distribution" not in (tmp_path / "prm" / CONFIG_NAME).read_text()
    with (
        closing(load_engine(str(tmp_path / "prm"), device="cpu")) as engine,
        closing(load_engine(str(trainer.settings.output), device="cpu")) as counted,
        serving({"plain": engine, "counted": counted, "fake": FakeEngine()}) as running,
    ):
        for model in ("plain", "fake", ["counted", "plain"]):
            answer = running.post("/score_steps", {"problem": PROBLEM, "solutions": [STEPS], "model": model}).json()
            assert "step_scores" in answer["solutions"][0]
            assert "step_intervals" not in answer["solutions"][0]


def test_the_loss_takes_both_outputs_of_a_layer(base, tmp_path):
    with pytest.raises(ModelInvalid, match="--head classes, not value"):
        Trainer(_settings(base, tmp_path, head="value"))
    places = ["--base", str(base), "--data", str(tmp_path / "steps.jsonl"), "--output", str(tmp_path / "by-command")]
    done = CliRunner().invoke(app, ["train", *places, "--loss", "beta-binomial", "--epochs", "1"])
    assert done.exit_code == 0, done.output
    assert PrmConfig.read(tmp_path / "by-command").head == "classes"
