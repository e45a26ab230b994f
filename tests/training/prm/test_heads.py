"""Every head learns, and what was trained is served and measured by its name alone."""

import json
import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import torch
from rich.progress import Progress
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification
from typer.testing import CliRunner

from tests.server.harness import serving
from tests.support import columns
from training import resumable
from training.__main__ import app
from training.prm import publish
from training.prm.collate import Example
from training.prm.network import FILE
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution
from unprm.errors import ModelInvalid
from unprm.formats.unprm import PrmConfig
from unprm.models.load import load_engine

QUIET = Progress(disable=True)
HEADS = {"verdicts": 0, "value": 1, "classes": 2}
ALL = {"tune": "all", "learning_rate": 3e-3}
TRAINED = [
    ("verdicts", "rank", {}),
    ("value", "mse", {}),
    ("value", "bce", ALL),
    ("classes", "bce", {}),
    ("classes", "mse", ALL),
]
"""A loss takes margins alone, whatever head they are of: `test_every_loss_learns` has all of them."""


def _solutions(count, seed=0):
    """A solution is wrong from the first step on that says 5."""
    rng = random.Random(seed)
    for _ in range(count):
        good = [rng.random() < 0.6 for _ in range(rng.randint(1, 3))]
        steps = [f"Step {k}: {rng.randint(1, 4)} is {'46' if each else '5'}." for k, each in enumerate(good, 1)]
        labels = [all(good[: k + 1]) for k in range(len(good))]
        yield LabelledSolution("Problem: what is 12?", tuple(steps), tuple(labels))


def _trainer(base, place, head="verdicts", loss="bce", **changes):
    data = place / "steps.jsonl"
    resumable.write_lines(data, list(_solutions(48)))
    values = {"epochs": 5, "batch_size": 12, "learning_rate": 2e-2, "lora_dropout": 0.0}
    output = place / "prm"
    return Trainer(
        TrainSettings(base=str(base), data=(data,), output=output, head=head, loss=loss, **(values | changes))
    )


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """Where the model with each head is, trained for a few steps."""
    places = {head: tmp_path_factory.mktemp(head) for head in HEADS}
    for head, place in places.items():
        _trainer(base, place, head, "orm", epochs=1).train(QUIET)
    return {head: place / "prm" for head, place in places.items()}


def _margins(trainer, solutions):
    """The trainer's margin of every step."""
    trainer.network.eval()
    with torch.no_grad():
        for solution in solutions:
            encoded = trainer.format.encode(solution.problem, solution.steps)
            (micro,) = trainer._micro_batches([Example(encoded, (1.0,) * len(solution.steps))])
            yield trainer.network(micro).tolist()


@pytest.mark.parametrize(("head", "loss", "changes"), TRAINED)
def test_every_head_learns_and_is_served_with_the_trainer_s_margins(base, tmp_path, head, loss, changes):
    trainer = _trainer(base, tmp_path, head, loss, **changes)
    trainer.train(QUIET)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "prm" / "train.jsonl").read_text().splitlines()]
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    solutions = list(_solutions(12, seed=9))
    expected = list(_margins(trainer, solutions))
    request = {"problem": solutions[0].problem, "solutions": [{"steps": solution.steps} for solution in solutions]}
    with closing(load_engine(str(tmp_path / "prm"), device="cpu")) as engine, serving(engine) as running:
        answers = running.post("/score_steps", request).json()["solutions"]
    for answer, margins in zip(answers, expected, strict=True):
        served = torch.tensor(answer["step_scores"], dtype=torch.float64).logit()
        assert served.tolist() == pytest.approx(margins, abs=1e-4)


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings=True.")
def test_an_adapter_on_tied_embeddings_is_served_with_the_trainer_s_margins(base, tmp_path):
    tied = Path(shutil.copytree(base, tmp_path / "base"))
    config = AutoConfig.from_pretrained(tied)
    config.tie_word_embeddings = True
    AutoModelForCausalLM.from_config(config).save_pretrained(tied)
    trainer = _trainer(tied, tmp_path, lora_targets=("q_proj", "embed_tokens"), epochs=2)
    trainer.train(QUIET)
    (solution,) = _solutions(1, seed=9)
    (expected,) = _margins(trainer, [solution])
    with closing(load_engine(str(tmp_path / "prm"), device="cpu")) as engine:
        (found,) = columns(engine.score([engine.format.encode(solution.problem, solution.steps)])).values
    assert torch.tensor(found).logit().tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("head", "outputs"), HEADS.items())
def test_a_trained_layer_lies_beside_the_adapter(trained, head, outputs):
    assert PrmConfig.read(trained[head]).head == head
    file = trained[head] / FILE
    assert file.exists() == bool(outputs)
    if outputs:
        with safe_open(file, framework="pt") as tensors:
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
        assert shapes == {"score.weight": [outputs, 64], "score.bias": [outputs]}
        with pytest.raises(ModelInvalid, match="use --engine torch"):
            load_engine(str(trained[head]), engine="vllm")


@pytest.mark.parametrize("head", ["value", "classes"])
def test_a_merged_checkpoint_keeps_its_head_also_for_transformers(trained, tmp_path, head):
    publish.merge_adapter(str(trained[head]), None, tmp_path / "merged", torch.float32)
    solution = next(_solutions(1))
    scores = []
    for place in (trained[head], tmp_path / "merged"):
        with closing(load_engine(str(place), device="cpu")) as engine:
            encoded = engine.format.encode(solution.problem, solution.steps)
            scores.append(columns(engine.score([encoded])).values[0])
    classifier = AutoModelForTokenClassification.from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        logits = classifier(torch.tensor([encoded.ids])).logits[0, list(encoded.positions)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-6)
    assert logits.softmax(-1)[:, 1].tolist() == pytest.approx(scores[0], abs=1e-5)


def test_a_killed_run_goes_on_with_its_layer(base, tmp_path):
    first = _trainer(base, tmp_path, "classes", epochs=1)
    first.train(QUIET)
    again = _trainer(base, tmp_path, "classes", epochs=1)
    assert again._resume() == len(first.steps)
    assert torch.equal(again._trained()["head.layers.0.weight"], first._trained()["head.layers.0.weight"])


@pytest.mark.parametrize("head", HEADS)
def test_processbench_runs_on_it(trained, tmp_path, head):
    rows = [
        {"id": f"made-{k}", "problem": s.problem, "steps": s.steps, "label": (*s.labels, False).index(False)}
        for k, s in enumerate(_solutions(12))
    ]
    for row in rows:
        row["label"] = -1 if row["label"] == len(row["steps"]) else row["label"]
    resumable.write_lines(tmp_path / "bench.jsonl", rows)
    options = ["--data", str(tmp_path / "bench.jsonl"), "--model", str(trained[head])]
    done = CliRunner().invoke(app, ["evaluate", "processbench", *options, "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
