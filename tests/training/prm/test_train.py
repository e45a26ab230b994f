"""The trainer: it learns at the right position, and what it writes is served."""

import itertools
import json
import math
import random
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from rich.progress import Progress
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.support import columns
from tests.tiny import write_base
from tests.training.prm import together
from tests.training.prm.kernels import packed
from tests.training.solutions import learnable
from training import resumable
from training.__main__ import app
from training.evaluate.metrics import Validation
from training.prm.collate import Example, batches, hold_out, micro_batches
from training.prm.loss import LOSSES
from training.prm.network import Network
from training.prm.processes import Processes
from training.prm.resume import STATE, RunState
from training.prm.train import Trainer
from training.prm.train_settings import LINEAR, TrainSettings
from training.schema import LabelledSolution
from unprm.checkpoints.files import load_base
from unprm.errors import ModelInvalid
from unprm.models.load import load_engine
from unprm.types import Encoded

QUIET = Progress(disable=True)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "steps.jsonl"
    resumable.write_lines(path, list(learnable(96)))
    return path


def _settings(base, data, output, **changes):
    values = {"epochs": 4, "batch_size": 16, "learning_rate": 2e-2, "lora_dropout": 0.1, "checkpoint_every": 3}
    return TrainSettings(base=str(base), data=(data,), output=output, **(values | changes))


@pytest.mark.parametrize("bf16", [False, True])
def test_a_trained_prm_is_served_and_tells_right_from_wrong(base, data, tmp_path, bf16):
    output = tmp_path / "prm"
    trainer = Trainer(_settings(base, data, output, epochs=8, bf16=bf16))
    assert {p.dtype for p in trainer._trained().values()} == {torch.float32}
    frozen = {p.dtype for p in trainer.network.parameters() if not p.requires_grad}
    assert frozen == {torch.bfloat16 if bf16 else torch.float32}
    summary = trainer.train(QUIET)
    losses = [json.loads(line)["loss"] for line in (output / "train.jsonl").read_text().splitlines()]
    assert len(losses) == summary.steps == 48
    assert sum(losses[-3:]) < 0.5 * sum(losses[:3])  # read at the tag itself: with a shift it would not fall
    engine = load_engine(str(output), device="cpu")
    for solution in learnable(20, seed=9):
        scores = columns(engine.score([engine.format.encode(solution.problem, solution.steps)])).values[0]
        assert [score > 0.5 for score in scores] == list(solution.labels)
    assert engine.description.name == "prm"
    card = (output / "README.md").read_text()
    assert "unprm serve --model" in card
    assert "96 (0 dropped" in card
    assert str(tmp_path) not in card + (output / "adapter_config.json").read_text()
    assert (
        len({path.stat().st_mode for path in output.iterdir() if path.is_file()}) == 1
    )  # whoever may read one may read all


def test_tag_and_verdicts_are_chosen(base, data, tmp_path):
    chosen = {"step_tag": "#", "positive": "1", "negative": "0"}
    output = tmp_path / "prm"
    Trainer(_settings(base, data, output, epochs=8, **chosen)).train(QUIET)
    engine = load_engine(str(output), device="cpu")
    solution = next(learnable(1, seed=9))
    encoded = engine.format.encode(solution.problem, solution.steps)
    assert engine.format.text(encoded).count("#") == len(solution.steps)
    assert [score > 0.5 for score in columns(engine.score([encoded])).values[0]] == list(solution.labels)
    with pytest.raises(ModelInvalid, match=r"'no good' is .* tokens"):
        Trainer(_settings(base, data, output, negative="no good"))
    with pytest.raises(ModelInvalid, match="differ"):
        Trainer(_settings(base, data, output, positive="-"))


def test_all_linear_layers_are_trained_and_read_back(base, data, tmp_path):
    for name, targets in (("all", ("all-linear",)), ("named", LINEAR)):
        Trainer(_settings(base, data, tmp_path / name, epochs=1, lora_targets=targets)).train(QUIET)
    tensors = load_file(tmp_path / "all" / "adapter_model.safetensors")
    assert {name.split(".")[-3] for name in tensors} == set(LINEAR)
    served, named = (load_engine(str(tmp_path / name), device="cpu") for name in ("all", "named"))
    items = [served.format.encode(solution.problem, solution.steps) for solution in learnable(3, seed=9)]
    assert served.score(items) == named.score(items)


def test_training_reads_the_label_at_the_tag(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path, lora_dropout=0.0))
    item = trainer.format.encode("Problem: 1?", ["12", "34 - 5"])
    micro = next(micro_batches([Example(item, (True, False))], 100))
    with torch.no_grad():
        margins = trainer.network(micro)
        logits = load_base(base, torch.float32)(micro.ids).logits[0, list(item.positions)]
    expected = logits[:, trainer.config.positive_id] - logits[:, trainer.config.negative_id]
    assert torch.allclose(margins, expected, atol=1e-5)


def test_the_loss_is_the_mean_over_the_whole_optimiser_batch():
    margins, labels = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([1.0, 0.0, 0.0])
    bce, rows = LOSSES["bce"], torch.tensor([0, 0, 1])
    parts = bce(margins[:1], labels[:1], rows[:1], 3) + bce(margins[1:], labels[1:], rows[1:], 3)
    by_hand = -(torch.sigmoid(margins[0]).log() + (1 - torch.sigmoid(margins[1:])).log().sum()) / 3
    assert parts == pytest.approx(by_hand.item())


MARGINS, LABELS, ROWS = [0.5, -0.2, 1.0, 0.3, -2.0], [1.0, 1.0, 0.0, 1.0, 1.0], [0, 0, 0, 1, 1]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_by_hand(name):
    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    e, z = math.exp, math.exp(1.0 + 4.0)
    ranked = [
        (math.log((1 + z) / 1), math.log((1 + e(0.5) + z) / e(0.5)), math.log((1 + e(0.5) + e(-0.2) + z) / e(-0.2))),
        (0.0, math.log((1 + e(0.3)) / e(0.3)), math.log((1 + e(0.3) + e(-2.0)) / e(-2.0))),
    ]
    by_hand = {
        "bce": [-math.log(sigmoid(m if y else -m)) for m, y in zip(MARGINS, LABELS, strict=True)],
        "mse": [(sigmoid(m) - y) ** 2 for m, y in zip(MARGINS, LABELS, strict=True)],
        "orm": [-math.log(sigmoid(-1.0)), -math.log(sigmoid(-2.0))],
        "rank": [sum(terms) / len(terms) for terms in ranked],
    }[name]
    tensors = torch.tensor(MARGINS), torch.tensor(LABELS), torch.tensor(ROWS)
    assert LOSSES[name].parts(*tensors).tolist() == pytest.approx(by_hand, rel=1e-5)
    assert LOSSES[name].count((True, True, False)) + LOSSES[name].count((True, True)) == len(by_hand)


@pytest.mark.parametrize("loss", ["mse", "orm", "rank"])
def test_every_loss_learns(base, data, tmp_path, loss):
    summary = Trainer(_settings(base, data, tmp_path / "prm", loss=loss, epochs=6)).train(QUIET)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "prm" / "train.jsonl").read_text().splitlines()]
    assert summary.loss < 0.6 * sum(losses[:3]) / 3
    assert f"({loss}, mean" in (tmp_path / "prm" / "README.md").read_text()


@pytest.mark.parametrize(("batch_tokens", "packing"), [(1, False), (60, False), (60, True), (10_000, True)])
def test_neither_micro_batches_nor_packing_change_anything(base, data, tmp_path, batch_tokens, packing):
    def gradient(tokens, packing=False):
        trainer = Trainer(_settings(base, data, tmp_path, lora_dropout=0.0, batch_tokens=tokens))
        batch = trainer.examples[:12]
        tags = sum(len(example.labels) for example in batch)
        compute = trainer.compute._replace(kernel=packed if packing else None)
        network = Network(trainer.network.model, trainer.network.head, compute)
        for micro in micro_batches(batch, tokens, packing):
            trainer.loss(network(micro), micro.labels, micro.solutions, tags).backward()
        return torch.cat([p.grad.flatten() for p in trainer._trained().values()])

    assert torch.allclose(gradient(batch_tokens, packing), gradient(10_000), atol=1e-5)


def test_packs_have_no_padding_and_keep_their_budget():
    rng = random.Random(2)
    examples = [Example(Encoded((1,) * n, (n - 1,)), (True,)) for n in (rng.randint(2, 50) for _ in range(40))]
    made = list(micro_batches(examples, 120, packing=True))
    assert sum(m.ids.numel() for m in made) == sum(len(e.encoded.ids) for e in examples)
    assert all(m.ids.numel() <= 120 for m in made)
    assert all((m.positions.flatten()[m.places] > 0).all() for m in made)


def test_micro_batches_keep_the_token_budget_and_every_label():
    rng = random.Random(2)
    examples = [
        Example(Encoded(tuple(range(n)), (n - 1,)), (bool(n % 2),)) for n in (rng.randint(2, 50) for _ in range(40))
    ]
    made = list(micro_batches(examples, 120))
    assert all(m.ids.numel() <= 120 for m in made)
    found = sorted(
        (int(m.places[k]) % m.ids.shape[1] + 1, bool(m.labels[k])) for m in made for k in range(len(m.labels))
    )
    assert found == sorted((len(e.encoded.ids), e.labels[0]) for e in examples)


def test_held_out_solutions_are_looked_at_each_epoch(base, data, tmp_path):
    held_out = tmp_path / "held-out.jsonl"
    # enough that it does not matter if the last digits of the merged adapter swap two of them
    solutions = list(learnable(400, seed=5))
    resumable.write_lines(held_out, solutions)
    output = tmp_path / "prm"
    Trainer(_settings(base, data, output, validation=(held_out,), epochs=2)).train(QUIET)
    validations = [json.loads(line) for line in (output / "validation.jsonl").read_text().splitlines()]
    assert [each.pop("epoch") for each in validations] == [0, 1, 2]  # the untrained base, and both epochs
    engine = load_engine(str(output), device="cpu")
    scores = columns(engine.score([engine.format.encode(s.problem, s.steps) for s in solutions])).values
    again = asdict(Validation.of(scores, [s.labels for s in solutions]))
    assert again == pytest.approx(validations[-1], abs=1e-3)


def test_problems_are_held_out_whole_by_default(base, tmp_path):
    data = tmp_path / "steps.jsonl"
    solutions = [replace(each, problem=f"Problem: {k % 40}?") for k, each in enumerate(learnable(200))]
    resumable.write_lines(data, solutions)
    trainer = Trainer(TrainSettings(base=str(base), data=(data,), output=tmp_path / "prm"))
    kept, held_out = ({example.problem for example in part} for part in (trainer.examples, trainer.held_out))
    assert (len(trainer.examples), len(trainer.held_out)) == (180, 20)
    assert not kept & held_out
    memory, steps, few, left = trainer.plan().splitlines()
    assert memory.startswith("memory: ")
    assert steps == "3 optimiser steps: 3 epochs of 180 solutions, 256 a step"
    assert left == "20 solutions are held out"
    assert "--head probe" in few
    summary = trainer.train(QUIET)
    assert summary.validations[0].auroc < summary.validations[-1].auroc
    assert len(summary.validations) == 4
    assert str(summary).endswith(f"; held out: {summary.validations[-1]}")
    assert f"| AUROC of 20 held-out solutions | {summary.validations[-1].auroc:.3f}, untrained " in (
        tmp_path / "prm" / "README.md"
    ).read_text("utf-8")
    everything = Trainer(TrainSettings(base=str(base), data=(data,), output=tmp_path / "all", held_out=0.0, epochs=60))
    assert (len(everything.examples), everything.held_out) == (200, [])
    assert everything.plan().splitlines()[1:] == ["60 optimiser steps: 60 epochs of 200 solutions, 256 a step"]


def test_no_more_is_held_out_than_says_more():
    examples = [Example(Encoded((1,), (0,)), (1.0,), f"{k % 4000}") for k in range(8000)]
    kept, held_out = hold_out(examples, 0.1, 0)
    assert (len(kept), len(held_out)) == (7500, 500)
    assert hold_out(examples, 0.1, 0)[1] == held_out
    assert hold_out(examples, 0.1, 1)[1] != held_out
    assert hold_out(examples[:9], 0.1, 0)[1] == []


def test_validation_by_hand():
    scores, labels = [[0.9, 0.2], [0.8, 0.7], [0.6]], [[True, False], [True, True], [False]]
    validation = Validation.of(scores, labels)
    # 5 of the 6 pairs of a right and a wrong step are in order, 4 of 5 verdicts fit, one of two errors is found
    assert validation.auroc == 1.0
    assert validation.accuracy == 4 / 5
    assert validation.f1 == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert validation.calibration_error == pytest.approx((0.1 + 0.2 + 0.2 + 0.3 + 0.6) / 5)
    one_sided = Validation.of([[0.9]], [[True]])
    assert (one_sided.auroc, one_sided.f1, one_sided.accuracy) == (None, None, 1)


def test_gradient_checkpointing_changes_nothing(base, data, tmp_path):
    def losses(name, **changes):
        Trainer(_settings(base, data, tmp_path / name, epochs=1, **changes)).train(QUIET)
        return [json.loads(line)["loss"] for line in (tmp_path / name / "train.jsonl").read_text().splitlines()]

    assert losses("plain") == pytest.approx(losses("checkpointed", gradient_checkpointing=True), abs=1e-5)


def test_two_processes_lose_what_one_does(base, data, tmp_path):
    changes = {"epochs": 2, "batch_tokens": 100, "learning_rate": 0.01, "bf16": True}
    one, two = (_settings(base, data, tmp_path / name, **changes) for name in ("one", "two"))
    Trainer(one).train(QUIET)
    together.train(two)
    expected, found = (
        [json.loads(line)["loss"] for line in (each.output / "train.jsonl").read_text().splitlines()]
        for each in (one, two)
    )
    assert len(expected) == 12
    assert found == pytest.approx(expected, abs=2e-3)


def test_an_epoch_sees_everything_once_in_an_order_of_its_own():
    one, again, two = ([*itertools.chain(*batches(50, 8, epoch, seed=1))] for epoch in (0, 0, 1))
    assert one == again != two
    assert sorted(one) == sorted(two) == list(range(50))


def test_a_checkpoint_of_another_run_is_refused(base, data, tmp_path):
    Trainer(_settings(base, data, tmp_path, epochs=1)).train(QUIET)
    with pytest.raises(ModelInvalid, match="other settings or data"):
        Trainer(_settings(base, data, tmp_path, epochs=1, learning_rate=1e-3)).train(QUIET)


def test_a_checkpoint_is_not_continued_on_other_weights_of_the_same_name(base, data, tmp_path):
    replaced = shutil.copytree(base, tmp_path / "base")
    Trainer(_settings(replaced, data, tmp_path / "prm", epochs=1)).train(QUIET)
    write_base(replaced, seed=1)
    with pytest.raises(ModelInvalid, match="another base by this name"):
        Trainer(_settings(replaced, data, tmp_path / "prm", epochs=1)).train(QUIET)


def test_a_run_goes_on_with_what_was_chosen_when_it_began(base, data, tmp_path):
    chosen = {"batch_tokens": 300, "gradient_checkpointing": True}
    Trainer(_settings(base, data, tmp_path, epochs=1, **chosen)).train(QUIET)
    assert RunState(tmp_path / STATE, Processes.join()).progress()["memory"] == chosen
    again = Trainer(_settings(base, data, tmp_path, epochs=1))
    assert again.settings.batch_tokens == 300
    assert again.settings.gradient_checkpointing
    assert again.train(QUIET).steps == 6
    other = Trainer(_settings(base, data, tmp_path, epochs=1, batch_tokens=301, gradient_checkpointing=False))
    assert (other.batch_tokens, other.train(QUIET).steps) == (301, 6)


def _runs_out(trainer, times):
    """Makes so many passes of a trainer run out of memory in their backward pass, when some gradients are there."""
    left = [times]

    def watch(layer, inputs, output):
        def fail(gradient):
            if left[0]:
                left[0] -= 1
                raise torch.OutOfMemoryError("made")

        output.register_hook(fail)

    trainer.network.model.get_decoder().layers[0].register_forward_hook(watch)


def test_where_memory_runs_out_passes_are_halved_and_the_step_is_as_it_would_have_been(base, data, tmp_path):
    trainers = [Trainer(_settings(base, data, tmp_path / str(k), batch_tokens=k)) for k in (100, 400)]
    batch = trainers[0].examples[:12]
    _runs_out(trainers[1], times=2)
    computed = []
    losses = [trainer.step(0, batch, computed.append) for trainer in trainers]
    assert losses[0] == losses[1]
    assert trainers[1].batch_tokens == 100
    assert computed[-1] == sum(len(example.encoded.ids) for example in batch)
    for one, two in zip(*(trainer._trained().values() for trainer in trainers), strict=True):
        assert torch.equal(one, two)


def test_smaller_passes_stay(base, data, tmp_path, capsys):
    trainer = Trainer(_settings(base, data, tmp_path, epochs=1, batch_tokens=400))
    _runs_out(trainer, times=1)
    trainer.train(QUIET)
    assert "out of memory: passes of up to 200 tokens from now on" in capsys.readouterr().out
    assert RunState(tmp_path / STATE, Processes.join()).progress()["memory"]["batch_tokens"] == 200
    assert Trainer(_settings(base, data, tmp_path, epochs=1)).batch_tokens == 200


def test_a_solution_that_no_pass_has_room_for_is_named(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path, batch_tokens=400))
    _runs_out(trainer, times=99)
    with pytest.raises(ModelInvalid, match=r"over one solution of \d+ tokens takes more memory than there is"):
        trainer.step(0, trainer.examples[:12])


class _Beside(Processes):
    """A process beside which another has room for 100 tokens, and enough of bytes."""

    def smallest(self, number):
        return min(number, 100) if number <= 400 else number


def test_a_process_follows_another_that_runs_out(base, data, tmp_path):
    beside = Trainer(_settings(base, data, tmp_path, batch_tokens=400), _Beside(0, 1, torch.device("cpu")))
    alone = Trainer(_settings(base, data, tmp_path, batch_tokens=100))
    assert beside.step(0, beside.examples[:12]) == alone.step(0, alone.examples[:12])
    assert beside.batch_tokens == 100


def test_a_state_that_cannot_be_written_leaves_no_file(tmp_path):
    (tmp_path / STATE).mkdir()
    with pytest.raises(OSError, match=STATE):
        RunState(tmp_path / STATE, Processes.join()).save({"a": torch.zeros(2)}, [], {})
    assert [place.name for place in tmp_path.iterdir()] == [STATE]


def test_what_does_not_fit_the_window_is_dropped_and_counted(base, tmp_path):
    path = tmp_path / "long.jsonl"
    long = LabelledSolution("Problem?", ("word " * 400,), (True,))
    resumable.write_lines(path, [long, *learnable(4)])
    trainer = Trainer(_settings(base, path, tmp_path / "out"))
    assert (len(trainer.examples), trainer.dropped) == (4, 1)
    places = ["--base", str(base), "--data", str(path), "--validation", str(path), "--output", str(tmp_path / "prm")]
    told = CliRunner().invoke(app, ["train", *places, "--epochs", "1"]).output
    for option in ("--data", "--validation"):
        assert f"{option}: 1 solutions longer than the model's window are left out" in told
    resumable.write_lines(path, [long])
    with pytest.raises(ModelInvalid, match=r"1 solutions .* none fits 256 tokens"):
        Trainer(_settings(base, path, tmp_path / "out"))


SOFT = LabelledSolution("Problem: 1?", ("12", "34 - 5", "46", "5"), (None, 0.25, True, None))


def test_steps_without_a_label_are_no_part_of_the_loss_and_soft_labels_are_its_targets(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path, lora_dropout=0.0))
    encoded = trainer.format.encode(SOFT.problem, SOFT.steps)
    example = Example.of(SOFT, encoded)
    assert (example.encoded.ids, example.encoded.positions) == (encoded.ids, encoded.positions[1:3])
    (micro,) = micro_batches([example], 100)
    with torch.no_grad():
        margins = trainer.network(micro)
        whole = trainer.network(next(micro_batches([Example(encoded, (0, 0, 0, 0))], 100)))
    assert torch.allclose(margins, whole[1:3], atol=1e-5)
    one, two = torch.sigmoid(margins).tolist()
    crossed = [-0.25 * math.log(one) - 0.75 * math.log(1 - one), -math.log(two)]
    by_hand = {"bce": crossed, "mse": [(one - 0.25) ** 2, (two - 1) ** 2], "orm": crossed[1:]}
    for name, parts in by_hand.items():
        found = LOSSES[name].parts(margins, micro.labels, micro.solutions)
        assert found.tolist() == pytest.approx(parts, rel=1e-5)
        assert LOSSES[name].count(example.labels) == len(parts)


def test_to_rank_a_step_is_right_if_its_label_is_above_a_half():
    margins, rows = torch.tensor([0.5, -0.2, 1.0]), torch.tensor([0, 0, 0])
    hard, soft, even = ([1.0, 0.0, 1.0], [0.6, 0.4, 1.0], [0.6, 0.5, 1.0])
    expected, found, again = (LOSSES["rank"].parts(margins, torch.tensor(each), rows) for each in (hard, soft, even))
    assert torch.equal(expected, found)
    assert torch.equal(expected, again)


def test_steps_without_a_label_are_not_validated(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path))
    example = Example.of(SOFT, trainer.format.encode(SOFT.problem, SOFT.steps))
    scores, labels = trainer._scored([example])
    assert labels == [[False, True]]
    assert [len(each) for each in scores] == [2]


def test_other_known_labels_are_another_run(base, tmp_path):
    def fingerprint(labels):
        path = tmp_path / "steps.jsonl"
        resumable.write_lines(path, [LabelledSolution("Problem: 1?", ("12", "34"), labels)])
        return Trainer(_settings(base, path, tmp_path / "prm", batch_tokens=100)).fingerprint

    assert fingerprint((True, None)) == fingerprint((True, None)) != fingerprint((None, True))
