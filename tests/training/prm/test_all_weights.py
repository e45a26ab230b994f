"""All weights are trained: by one process, or by several; their checkpoint is served by itself."""

import contextlib
import json
import random
import signal
import time

import pytest
import torch
from rich.progress import Progress
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config

from tests import tiny
from tests.support import columns, until
from tests.training.prm import together
from tests.training.solutions import learnable
from training import resumable
from training.prm.collate import micro_batches
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from unprm.checkpoints.files import load_base
from unprm.errors import OutputMismatch
from unprm.models.load import load_engine

QUIET = Progress(disable=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "steps.jsonl"
    resumable.write_lines(path, list(learnable(48)))
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def any_base(request, base, tmp_path_factory):
    """A base whose output layer shares its weights with the embedding, and one where it doesn't; in bfloat16."""
    place = tmp_path_factory.mktemp("base") / "base"
    model = load_base(base, torch.bfloat16)
    if request.param:
        config = Qwen2Config(**model.config.to_dict() | {"tie_word_embeddings": True, "dtype": "bfloat16"})
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(place)
    tiny.load_tokenizer(base).save(str(place / "tokenizer.json"))
    return place


def _settings(base, data, output, **changes):
    values = {"tune": "all", "epochs": 6, "batch_size": 16, "learning_rate": 3e-3, "checkpoint_every": 2}
    return TrainSettings(base=str(base), data=(data,), output=output, **(values | changes))


def _losses(output):
    return [json.loads(line)["loss"] for line in (output / "train.jsonl").read_text().splitlines()]


def test_a_checkpoint_of_all_weights_is_served_by_itself(any_base, data, tmp_path):
    output = tmp_path / "prm"
    trainer = Trainer(_settings(any_base, data, output, validation=(data,)))
    before = load_file(any_base / "model.safetensors")
    summary = trainer.train(QUIET)
    losses = _losses(output)
    assert len(losses) == summary.steps == 18
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])
    after = load_file(output / "model.safetensors")
    classifier = {"score.weight", "score.bias"}
    assert after.keys() - classifier == before.keys()
    assert {after[name].dtype for name in before} == {torch.bfloat16}
    assert not [name for name in before if torch.equal(after[name], before[name])]
    if "lm_head.weight" in after:
        changed = (after["lm_head.weight"] != before["lm_head.weight"]).any(dim=1).nonzero().flatten().tolist()
        assert changed == sorted((trainer.config.positive_id, trainer.config.negative_id))
    with contextlib.closing(load_engine(str(output), device="cpu")) as engine:
        encoded = [example.encoded for example in trainer.examples[:8]]
        scores = torch.tensor([score for each in columns(engine.score(encoded)).values for score in each])
    assert engine.description.name == "prm"
    with torch.no_grad():
        trained = [trainer.network(*micro_batches([example], 1)).sigmoid() for example in trainer.examples[:8]]
    assert torch.allclose(torch.cat(trained), scores, atol=0.05)  # written weights are rounded
    assert "all weights of" in (output / "README.md").read_text()


@pytest.mark.parametrize(("first", "then"), [("lora", "all"), ("all", "lora")])
def test_a_directory_is_of_adapters_or_of_all_weights(base, data, tmp_path, first, then):
    Trainer(_settings(base, data, tmp_path, tune=first, epochs=1)).train(QUIET)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    held = {"lora": "an adapter", "all": "a model of which all weights were trained"}
    with pytest.raises(OutputMismatch, match=f"holds {held[first]}: {held[then]} takes another directory"):
        Trainer(_settings(base, data, tmp_path, tune=then, epochs=1))
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == files


def test_two_processes_do_what_one_does(any_base, data, tmp_path):
    # of each batch a process gets several micro-batches, and one of the two once more than the other
    changes = {"epochs": 2, "batch_tokens": 100, "bf16": False}
    one, two = (_settings(any_base, data, tmp_path / name / "prm", **changes) for name in ("one", "two"))
    Trainer(one).train(QUIET)
    together.train(two)
    assert len(_losses(one.output)) == 6
    assert _losses(two.output) == pytest.approx(_losses(one.output), abs=1e-5)
    expected, found = (load_file(each.output / "model.safetensors") for each in (one, two))
    assert expected.keys() == found.keys()
    assert all(torch.allclose(expected[name], found[name], rtol=0.01, atol=1e-4) for name in expected)


def _kill(settings, kills, count=2):
    """Starts processes `kills` times and kills them at random moments, always before their end."""
    rng = random.Random(7)
    moments = sorted(rng.sample(range(1, STEPS - 1), kills))
    written = settings.output / "train.jsonl"
    for steps in moments:
        processes = together.start(settings, count, ends=False)
        until(lambda steps=steps: written.exists() and written.read_text().count("\n") >= steps)
        time.sleep(rng.uniform(0, 0.05))
        for process in rng.sample(processes, count):
            process.kill()
        for process in processes:
            process.join()
            assert process.exitcode == -signal.SIGKILL


STEPS = 12


@pytest.mark.parametrize(
    ("tune", "weights", "count"),
    [
        ("lora", "adapter_model.safetensors", 1),
        ("lora", "adapter_model.safetensors", 2),
        ("all", "model.safetensors", 2),
    ],
    ids=["lora alone", "lora", "all"],
)
def test_killed_three_times_a_run_ends_where_it_would_have(base, data, tmp_path, tune, weights, count):
    changes = {"tune": tune, "epochs": 4, "checkpoint_every": 1, "batch_tokens": 400}
    whole, killed = (_settings(base, data, tmp_path / name / "prm", **changes) for name in ("whole", "killed"))
    together.train(whole, count)
    _kill(killed, 3, count)
    assert not (killed.output / weights).exists()
    together.train(killed, count)
    assert _losses(killed.output) == _losses(whole.output)
    assert len(_losses(whole.output)) == STEPS
    expected, found = (load_file(each.output / weights) for each in (whole, killed))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_one_process_ends_what_two_began(base, data, tmp_path):
    changes = {"epochs": 4, "checkpoint_every": 1, "batch_tokens": 400}
    whole, killed = (_settings(base, data, tmp_path / name / "prm", **changes) for name in ("whole", "killed"))
    Trainer(whole).train(QUIET)
    _kill(killed, 1)
    Trainer(killed).train(QUIET)
    assert len(_losses(killed.output)) == STEPS
    assert _losses(killed.output) == pytest.approx(_losses(whole.output), abs=1e-4)
