"""The trainer's network: number types, what is frozen and what is kept of the output layer, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config
from typer.testing import CliRunner

from training.__main__ import app
from training.prm.network import Compute, Network, compute_in_float32, make_head, prepare, read_shape
from training.prm.train_settings import TrainSettings
from unprm.engines.torch import varlen
from unprm.engines.torch.quantized import WidenedLinear
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIG = Qwen2Config(**SHAPE)
SETTINGS = TrainSettings("", (), Path())
SLOW, CARD = (Compute.of(SETTINGS, device, device == "cuda") for device in ("cpu", "cuda"))
LENGTH = 64


def test_on_a_card_bfloat16_is_the_default_and_a_cpu_s_speed_decides_how_it_computes():
    lora, whole = SETTINGS, replace(SETTINGS, tune="all")
    half, full = torch.bfloat16, torch.float32
    for settings, expected in (
        (lora, (half, True, varlen.installed())),
        (whole, (full, True, varlen.installed())),
        (replace(lora, bf16=False), (half, False, varlen.installed())),
        (replace(whole, bf16=False), (full, False, None)),
    ):
        assert Compute.of(settings, "cuda", True)[1:] == expected
        old = Compute.of(settings, "cuda", False)
        assert old[1:] == (expected[0], False, None)
    assert Compute.of(lora, "cpu", True) == Compute.of(lora, "cpu", False) == ("cpu", full, False, None)
    wanted = replace(lora, bf16=True)
    fast, slow = (Compute.of(wanted, "cpu", each) for each in (True, False))
    assert (fast.base, fast.autocast, fast.widens) == (half, True, False)
    assert (slow.base, slow.autocast, slow.widens) == (half, False, True)
    for each in (fast, slow):
        base = AutoModelForCausalLM.from_config(CONFIG, dtype=each.base)
        widened = [module for module in prepare(base, wanted, each).modules() if isinstance(module, WidenedLinear)]
        assert bool(widened) is each.widens


def test_what_stays_in_float32_is_computed_in_tf32_on_a_card_alone():
    for compute, expected in ((CARD, "high"), (SLOW, "highest")):
        with compute.products():
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"


def test_frozen_layers_in_bfloat16_compute_in_float32():
    torch.manual_seed(0)
    half = torch.nn.Linear(6, 4, dtype=torch.bfloat16).requires_grad_(False)
    full = torch.nn.Linear(6, 4).requires_grad_(False)
    full.load_state_dict(half.state_dict())
    network = torch.nn.Sequential(half)
    compute_in_float32(network)
    assert network[0].weight is half.weight
    inputs = torch.randn(3, 6, requires_grad=True)
    assert torch.equal(network(inputs), full(inputs))
    found, expected = (torch.autograd.grad(layer(inputs).square().sum(), inputs)[0] for layer in (network, full))
    assert torch.equal(found, expected)
    assert torch.equal(network(inputs.bfloat16()), full(inputs.bfloat16().float()))
    with pytest.raises(ModelInvalid, match="train without bf16"):
        compute_in_float32(torch.nn.Sequential(torch.nn.Conv1d(2, 2, 2, dtype=torch.bfloat16)))


def test_of_the_output_layer_two_rows_are_kept():
    for tied in (False, True):
        base = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE, tie_word_embeddings=tied))
        rows, size = base.get_output_embeddings().weight.detach().clone(), base.num_parameters()
        settings = replace(SETTINGS, tune="all")
        model = prepare(base, settings, SLOW)
        network = Network(model, make_head(model, settings, Verdicts(5, 9)), SLOW)
        states = torch.randn(LENGTH, rows.shape[1])
        assert torch.allclose(network.head(states), states @ (rows[5] - rows[9]), atol=1e-6)
        kept_size = sum(parameter.numel() for parameter in network.parameters())
        assert kept_size == size - (0 if tied else rows.numel() - 2 * rows.shape[1])


@pytest.mark.parametrize(("target", "reason"), [("lm_head", "include the output layer"), ("nothing", "no adapter")])
def test_layers_that_can_t_be_trained_are_refused(target, reason):
    settings = replace(SETTINGS, lora_targets=("q_proj", target) if target == "lm_head" else (target,))
    with pytest.raises(ModelInvalid, match=reason):
        prepare(AutoModelForCausalLM.from_config(CONFIG), settings, SLOW)


def test_a_base_without_a_known_shape_is_refused(tmp_path):
    with pytest.raises(ModelInvalid, match="no configuration of a known language model"):
        read_shape(str(tmp_path / "nothing"))


def test_with_all_weights_there_is_no_adapter_to_set(tmp_path):
    options = ["train", "--base=x", f"--data={tmp_path}", f"--output={tmp_path / 'prm'}", "--tune=all", "--lora-rank=4"]
    result = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "with all weights trained there is no adapter" in result.output
