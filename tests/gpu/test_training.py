"""Training on a GPU against a CPU's: a step, and the attention of packed solutions, on a CPU by a plain kernel."""

from dataclasses import replace

import pytest
import torch

from tests.support import TEST_DATA
from tests.tiny import write_base
from tests.training.prm.kernels import packed
from training.prm.network import Network
from training.prm.processes import Processes
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("tiny") / "base", window=4096)


def _trainer(base, output, device, plain=False, **changes):
    """A trainer on a device, without padding, or a `plain` one on a CPU."""
    data = (TEST_DATA / "layouts" / "prm800k.jsonl",)
    settings = TrainSettings(str(base), data, output, batch_size=8, lora_dropout=0.0, learning_rate=1e-3, **changes)
    if plain:
        settings = replace(settings, bf16=False, batch_tokens=1)
    trainer = Trainer(settings, Processes(0, 1, torch.device("cpu") if plain else device))
    if device.type == "cpu" and not plain:
        compute = trainer.compute._replace(kernel=packed)
        trainer.network = Network(trainer.network.model, trainer.network.head, compute)
    assert (trainer.network.kernel is None) is plain
    return trainer


def _gradient(trainer, batch):
    loss = trainer._passes(0, batch, lambda tokens: None)
    return loss.item(), torch.cat([p.grad.flatten().cpu() for p in trainer._trained().values()])


@pytest.mark.parametrize("tune", ["lora", "all"])
def test_a_loss_and_its_gradient_are_those_of_padded_solutions(base, tmp_path, device, tune):
    changes = {"tune": tune, "gradient_checkpointing": tune == "all"}
    ours, plain = (_trainer(base, tmp_path, device, plain=each, **changes) for each in (False, True))
    batch = ours.examples[:12]
    (loss, found), (expected_loss, expected) = _gradient(ours, batch), _gradient(plain, batch)
    near = 1e-5 if device.type == "cpu" else 0.05  # in bfloat16
    assert loss == pytest.approx(expected_loss, rel=near)
    assert (found - expected).norm() < near * expected.norm()


def test_without_bfloat16_a_gpu_is_near_a_cpu(base, tmp_path, cuda):
    """In TF32, and padded."""
    settings = {"tune": "all", "bf16": False}
    processes = (Processes(0, 1, device) for device in (cuda, torch.device("cpu")))
    data = (TEST_DATA / "layouts" / "prm800k.jsonl",)
    trainers = [Trainer(TrainSettings(str(base), data, tmp_path, **settings), each) for each in processes]
    (loss, found), (expected_loss, expected) = (_gradient(each, each.examples[:12]) for each in trainers)
    assert loss == pytest.approx(expected_loss, rel=0.01)
    assert (found - expected).norm() < 0.02 * expected.norm()
    assert torch.get_float32_matmul_precision() == "highest"


def test_steps_lower_the_loss_as_a_cpu_s_do(base, tmp_path, device):
    ours, plain = (_trainer(base, tmp_path, device, plain=each) for each in (False, True))
    batch = ours.examples[:8]
    found, expected = ([trainer.step(step, batch) for step in range(6)] for trainer in (ours, plain))
    assert found == pytest.approx(expected, rel=1e-4 if device.type == "cpu" else 0.05)
    assert found[-1] < found[0]
