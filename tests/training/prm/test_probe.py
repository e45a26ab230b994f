"""Probes: what the trainer keeps of a base, what it writes of that, and what it refuses."""

import json
import os
import random
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.progress import Progress
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from tests import forked
from tests.support import columns
from tests.tiny import write_base
from tests.training.solutions import learnable
from training import resumable
from training.__main__ import app
from training.prm.probe import (
    READOUTS,
    FrozenBase,
    ProbeTrainer,
    candidates,
    passes,
)  # fmt: skip
from training.prm.publish import PROBE_STATES
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from training.schema import LabelledSolution
from unprm.calibration import sigmoid
from unprm.checkpoints.files import load_base, load_tokenizer
from unprm.engines.torch import attention
from unprm.errors import ModelInvalid, OutputMismatch
from unprm.formats.probe import ProbeConfig, ProbeFormat
from unprm.models.load import load_engine
from unprm.types import Encoded
from unprm.uncertainty import MEASURES, SURPRISAL

QUIET = Progress(disable=True)
TEMPLATE = "{% for m in messages %}Problem: {{ m['content'] }}\n{% endfor %}The answer is: "


def _solutions(count, seed=0):
    """Solutions of which four each have a problem, and some begin alike."""
    rng = random.Random(seed)
    for number, solution in enumerate(learnable(count, seed)):
        labels = [None if rng.random() < 0.2 else label for label in solution.labels]
        labels = labels if any(label is not None for label in labels) else solution.labels
        steps = ("Step 1: what is 12?", *solution.steps)
        yield LabelledSolution(f"what is {number // 4} + 34?", steps, (None, *labels))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a base of four layers that has a chat template, `steps.jsonl` and `held-out.jsonl`."""
    directory = tmp_path_factory.mktemp("probe")
    base = write_base(directory / "base", layers=4)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(base)
    resumable.write_lines(directory / "steps.jsonl", _solutions(120))
    resumable.write_lines(directory / "held-out.jsonl", _solutions(40, seed=5))
    return directory


def _settings(place, output, **changes):
    values = {"base": str(place / "base"), "data": (place / "steps.jsonl",), "output": output, "batch_tokens": 300}
    return TrainSettings(**(values | {"tune": "none", "head": "probe"} | changes))


@pytest.fixture(scope="module")
def trained(place):
    """A probe's directory and the summary of its training."""
    output = place / "trained" / "prm"
    return output, ProbeTrainer(_settings(place, output, validation=(place / "held-out.jsonl",))).train(QUIET)


@torch.no_grad()
def _plain(directory, base, solution):
    """Step scores as the configuration and the weights say, by transformers alone."""
    config, weights = ProbeConfig.read(directory), load_file(directory / "head.safetensors")
    encoded = ProbeFormat(load_tokenizer(base), config).encode(solution.problem, solution.steps)
    made = load_base(base, torch.float32)(torch.tensor([encoded.ids]), output_hidden_states=True)
    inputs = torch.cat([made.hidden_states[layer][0] for layer in config.layers], dim=1)
    values = inputs @ weights["token.weight"][0]
    logprobs = made.logits[0].double().log_softmax(1)[:-1].gather(1, torch.tensor(encoded.ids)[1:, None])[:, 0].tolist()
    scores, start = [], encoded.response
    for position in encoded.positions:
        step = logprobs[start - 1 : position]
        figures = np.log1p([MEASURES[name](step) for name in config.measures])
        mean = np.average(values[start : position + 1], weights=-np.array(step))
        scores.append(sigmoid(float(mean + figures @ weights["measures.weight"][0].numpy() + weights["measures.bias"])))
        start = position + 1
    return scores


def test_a_trained_probe_is_served_and_tells_right_from_wrong(place, trained):
    output, summary = trained
    engine = load_engine(str(output), device="cpu")
    assert engine.description.name == "prm"
    assert (
        len({path.stat().st_mode for path in output.iterdir() if path.is_file()}) == 1
    )  # whoever may read one may read all
    solutions = list(_solutions(40, seed=5))
    found = columns(engine.score([engine.format.encode(each.problem, each.steps) for each in solutions])).values
    assert found[0] == pytest.approx(_plain(output, place / "base", solutions[0]), abs=1e-4)
    pairs = [
        (scores[step] > 0.5, label)
        for scores, each in zip(found, solutions, strict=True)
        for step, label in each.known.items()
    ]
    accuracy = sum(verdict == label for verdict, label in pairs) / len(pairs)
    assert accuracy > 0.9
    (held_out,) = (json.loads(line) for line in (output / "validation.jsonl").read_text().splitlines())
    assert held_out["accuracy"] == pytest.approx(accuracy, abs=0.01)
    assert summary.held_out.accuracy == held_out["accuracy"]


def test_what_is_written_says_how_it_is_read_and_what_it_was_trained_on(place, trained):
    output, summary = trained
    config = ProbeConfig.read(output)
    assert (config.base, config.before, config.after) == ("../../base", "Problem: ", "\nThe answer is: ")
    assert set(config.layers) <= {2, 4}
    assert config.measures == SURPRISAL
    rows = [json.loads(line) for line in (output / READOUTS).read_text().splitlines()]
    assert [row["layer"] for row in rows[1:-1]] == [2, 4]
    assert {row["layer"] for row in rows[1:-1] if row["chosen"]} == set(config.layers)
    assert rows[-1]["log_loss"] <= min(row["log_loss"] for row in rows)
    card = (output / "README.md").read_text()
    assert f"| labelled steps | {summary.steps}, " in card
    assert "--tune none" in card
    assert str(place) not in card


def _filled(trainer):
    """A trainer's states, after the pass."""
    longest = max(len(text.ids) for text in trainer.states.texts)
    trainer.states.fill(FrozenBase(trainer, longest), lambda tokens: None)
    return trainer.states


def test_a_shared_prefix_counts_once_in_a_pass():
    texts = [Encoded(ids, ()) for ids in ((1, 2, 3), (1, 2, 3, 4), (1, 2, 5), (7,) * 9, (8,))]
    assert list(passes(texts, 5)) == [range(3), range(3, 4), range(4, 5)]
    assert list(passes(texts, 4)) == [range(2), range(2, 3), range(3, 4), range(4, 5)]
    assert list(passes(texts, 100)) == [range(5)]


@pytest.mark.parametrize("tree", [True, False])
def test_a_text_s_states_do_not_depend_on_its_pass(place, tmp_path, monkeypatch, tree):
    """By the engine's tree, and one text after the other, as where the tree can't compute a base's attention."""
    trainer = ProbeTrainer(_settings(place, tmp_path, bf16=False))
    if not tree:
        monkeypatch.setattr(attention, "unsupported", lambda config: "of another kind")
    base = FrozenBase(trainer, 200)
    assert (base._engine is not None) is tree
    texts, known = trainer.states.texts[:9], trainer.states.known[:9]
    together = list(base.steps(texts, known))
    alone = [step for text, steps in zip(texts, known, strict=True) for step in base.steps([text], [steps])]
    for (states, figures), (expected, measured) in zip(together, alone, strict=True):
        assert states == pytest.approx(expected, rel=2e-3, abs=2e-3)
        assert figures == pytest.approx(measured, rel=1e-4)


def test_only_the_tokens_of_labelled_steps_are_kept(place, tmp_path):
    path = tmp_path / "steps.jsonl"
    one = LabelledSolution("12?", ("12 + 34 = 46.", "So 41", "46 - 5", "12"), (None, 0.25, True, None))
    # the same prefix, of which another step has a label
    other = replace(one, steps=("12 + 34 = 46.", "So 41", "5"), labels=(False, None, True))
    resumable.write_lines(path, [one, other])
    states = _filled(ProbeTrainer(_settings(place, tmp_path / "prm", data=(path,), bf16=False)))
    assert states.right.tolist() == [
        label > 0.5 for example in states.examples for label in example.labels if label == label
    ]
    model, row, features = load_base(place / "base", torch.float32), 0, states.features
    for example in states.examples:
        ids = torch.tensor([example.encoded.ids])
        with torch.no_grad():
            made = model(ids, output_hidden_states=True)
        surprise = -made.logits[0].log_softmax(1)[:-1].gather(1, ids[0, 1:, None])[:, 0].double()
        start = example.encoded.response
        for position, label in zip(example.encoded.positions, example.labels, strict=True):
            if label == label:
                for index, layer in enumerate((2, 4)):
                    hidden = made.hidden_states[layer][0]
                    kept = features.states[index, row]
                    rows, weights = hidden[start : position + 1], surprise[start - 1 : position, None].float()
                    expected = (rows * weights).sum(0) / weights.sum()
                    assert kept == pytest.approx(expected.numpy(), rel=2e-3, abs=2e-3)
                figures = MEASURES[SURPRISAL[2]]((-surprise[start - 1 : position]).tolist())
                assert features.measures[row, 2] == pytest.approx(np.log1p(figures), rel=1e-4)
                row += 1
            start = position + 1
    assert row == len(states.right) == 4


class _Stuck(Progress):
    """That of a run which stops after its first pass: it never goes on before it is killed."""

    def advance(self, *arguments, **options):
        super().advance(*arguments, **options)
        while True:
            signal.pause()


def _begin(settings):
    ProbeTrainer(settings).train(_Stuck(disable=True))


def test_a_killed_run_goes_on_where_it_was_and_ends_as_it_would_have(place, trained, tmp_path):
    settings = _settings(place, place / "killed" / "prm", validation=(place / "held-out.jsonl",))
    kept = settings.output / PROBE_STATES
    process = forked.start(_begin, settings)
    while not list(kept.glob("*.safetensors")):
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    (done,) = kept.glob("*.safetensors")
    trainer = ProbeTrainer(settings)
    assert len(trainer.states.missing) == len(list(passes(trainer.states.texts, trainer.tokens))) - 1 > 1
    before = done.stat()
    trainer.train(QUIET)
    assert done.stat().st_mtime_ns == before.st_mtime_ns
    expected, _ = trained
    names = ("head.safetensors", READOUTS, "validation.jsonl")
    for path in (*expected.glob("*states/*"), *(expected / name for name in names)):
        assert (settings.output / path.relative_to(expected)).read_bytes() == path.read_bytes()


def test_states_of_other_data_or_passes_are_refused(place, tmp_path):
    assert ProbeTrainer(_settings(place, tmp_path)).states.missing
    for changed in ({"data": (place / "held-out.jsonl",)}, {"batch_tokens": 301}):
        with pytest.raises(OutputMismatch, match="was made with another configuration"):
            _ = ProbeTrainer(_settings(place, tmp_path, **changed)).states.missing


def test_labels_that_allow_no_fit_are_refused_before_the_pass(place, tmp_path):
    path = tmp_path / "steps.jsonl"
    resumable.write_lines(path, [replace(each, labels=(True,) * len(each.steps)) for each in _solutions(40)])
    with pytest.raises(ModelInvalid, match="a probe takes right and wrong steps of at least 5 problems"):
        ProbeTrainer(_settings(place, tmp_path / "prm", data=(path,))).train(QUIET)
    assert not (tmp_path / "prm").exists()


@pytest.mark.parametrize(
    ("depth", "layers"), [(1, (1,)), (4, (2, 4)), (24, tuple(range(6, 25, 2))), (28, tuple(range(8, 29, 2)))]
)
def test_every_second_layer_from_a_quarter_of_the_depth_on_may_be_read(depth, layers):
    assert candidates(depth) == layers


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--tune=none"], "give --head probe too"),
        (["--head=probe"], "give --tune none too"),
        (["--tune=all", "--head=probe"], "give --tune none too"),
        (["--tune=none", "--head=value"], "give --head probe too"),
        *(
            (["--tune=none", "--head=probe", option], f"--{option[2:].partition('=')[0]}")
            for option in (
                "--lora-rank=4",
                "--epochs=2",
                "--learning-rate=0.1",
                "--loss=mse",
                "--step-tag=+",
                "--preset=default",
            )
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(tmp_path, options, named):
    given = ["train", "--base=x", f"--data={tmp_path}", f"--output={tmp_path / 'prm'}", *options]
    result = CliRunner().invoke(app, given, env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert named in result.output
    assert not (tmp_path / "prm").exists()


@pytest.mark.parametrize(
    ("left", "held"),
    [
        ("adapter_config.json", "an adapter"),
        ("config.json", "a model of which all weights were trained"),
        ("checkpoint.safetensors", "the checkpoint of a killed run"),
    ],
)
def test_a_directory_of_trained_weights_gets_no_probe(place, tmp_path, left, held):
    (tmp_path / left).write_text("{}")
    with pytest.raises(OutputMismatch, match=f"{tmp_path} holds {held}: a probe takes another directory"):
        ProbeTrainer(replace(_settings(place, tmp_path), base="read-later"))
    assert [path.name for path in tmp_path.iterdir()] == [left]


@pytest.mark.parametrize("tune", ["lora", "all"])
def test_a_directory_of_a_probe_gets_no_trained_weights(place, trained, tmp_path, tune):
    output, _ = trained
    (tmp_path / PROBE_STATES).mkdir()
    for directory in (output, tmp_path):  # of a whole probe, and of what a killed run left
        settings = TrainSettings(base="read-later", data=(), output=directory, tune=tune)
        with pytest.raises(OutputMismatch, match=f"{directory} holds a probe: .* takes another directory"):
            Trainer(settings)


def test_the_command_prints_every_read_out(place, tmp_path):
    options = ["train", f"--base={place / 'base'}", f"--data={place / 'steps.jsonl'}", f"--output={tmp_path / 'prm'}"]
    result = CliRunner().invoke(app, [*options, "--tune=none", "--head=probe"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for text in ("measures of surprisal", "layer 4", "all of it", "a probe of layers"):
        assert text in result.output
