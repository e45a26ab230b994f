"""Linear layers in eight bits: near to the plain ones, and a row's result is its own."""

import pytest
import torch
from torch import nn

from tests.tiny import largest_error
from unprm import mini
from unprm.engines.torch import quantized
from unprm.engines.torch.quantized import EightBitLinear, widen
from unprm.errors import ModelInvalid
from unprm.models.load import _pick_dtype, load_engine

NUMBERS = [("int8", 0.02), ("float8", 0.06)]


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_near_to_the_plain_one(numbers, tolerance, bias):
    torch.manual_seed(0)
    linear = nn.Linear(96, 64, bias=bias)
    rows = torch.randn(2, 5, 96) * torch.tensor([0.01, 1.0, 100.0, 1e-3, 7.0])[:, None]  # a scale for each
    with torch.inference_mode():
        expected, made = linear(rows), EightBitLinear(linear, numbers)(rows)
    sizes = (expected - (linear.bias if bias else 0)).norm(dim=-1, keepdim=True)
    assert made.shape == expected.shape
    assert ((made - expected).norm(dim=-1, keepdim=True) / sizes).max() < tolerance


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
def test_the_largest_of_a_row_keeps_its_sign_in_bfloat16(numbers, tolerance):
    torch.manual_seed(0)
    linear = nn.Linear(256, 1, bias=False).bfloat16()
    linear.weight.data.fill_(1 / 256)
    rows = torch.zeros(4096, 256).bfloat16()
    rows[:, 0] = torch.rand(4096).bfloat16() + 0.5  # alone in its row, it is the largest
    with torch.inference_mode():
        expected, made = linear(rows).float(), EightBitLinear(linear, numbers)(rows).float()
    assert torch.allclose(made, expected, rtol=tolerance)


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
def test_what_else_is_in_the_batch_does_not_matter(numbers, tolerance):
    torch.manual_seed(0)
    layer = EightBitLinear(nn.Linear(96, 64), numbers)
    rows = torch.randn(40, 96)
    with torch.inference_mode():
        together = layer(rows)
        louder = layer(torch.cat([rows[:1], 1000 * rows[1:]]))
    assert torch.allclose(louder[0], together[0], atol=1e-5)


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
def test_rows_of_zeros_are_no_matter(numbers, tolerance):
    linear = nn.Linear(32, 16)
    linear.weight.data[3] = 0
    with torch.inference_mode():
        made = EightBitLinear(linear, numbers)(torch.zeros(2, 32))
    assert torch.equal(made, linear.bias.detach().expand(2, 16))


@pytest.mark.parametrize(("numbers", "most"), [("int8", 0.05), ("float8", 0.15)])
def test_hidden_states_are_near_to_those_in_bfloat16(numbers, most):
    assert largest_error(numbers, "cpu") < most


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
def test_a_model_in_eight_bits_tells_right_from_wrong(numbers, tolerance):
    problem = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    eight_bit, plain = (load_engine(mini.NAME, device="cpu", dtype=dtype) for dtype in (numbers, "float32"))
    assert eight_bit.description.dtype == numbers
    items = [eight_bit.format.encode(problem, [f"Step 1: 23 + 45 = {made}."]) for made in (68, 78, 69)]
    for values, expected in zip(eight_bit.score(items).scores, plain.score(items).scores, strict=True):
        assert values == pytest.approx(expected, abs=0.1)


def test_a_gpu_is_not_asked_for_what_it_does_not_compute(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ModelInvalid, match="int8 is computed on CPUs alone: on a GPU use --dtype float8 or bfloat16"):
        _pick_dtype("int8", gpu)
    with pytest.raises(ModelInvalid, match="A100 does not compute in float8: use --dtype bfloat16"):
        _pick_dtype("float8", gpu)
    assert _pick_dtype("auto", gpu) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert _pick_dtype("float8", gpu) == torch.bfloat16
    assert _pick_dtype("float8", torch.device("cpu")) == _pick_dtype("int8", torch.device("cpu")) == torch.float32


def test_vllm_is_not_asked_for_int8(monkeypatch):
    monkeypatch.setattr("unprm.models.load.find_spec", lambda name: object())
    with pytest.raises(ModelInvalid, match="use --engine torch"):
        load_engine(mini.NAME, engine="vllm", dtype="int8")


def test_vllm_alone_splits_a_model_over_gpus():
    with pytest.raises(ModelInvalid, match="--tensor-parallel-size is for --engine vllm; the model's engine is torch"):
        load_engine(mini.NAME, tensor_parallel_size=2)


@pytest.mark.parametrize("numbers", ["int8", "float8"])
def test_a_processor_without_instructions_for_eight_bits_computes_the_same(numbers, monkeypatch):
    torch.manual_seed(0)
    linear, rows = nn.Linear(96, 64), torch.randn(40, 96)
    with torch.inference_mode():
        made = []
        for fast in (True, False):
            monkeypatch.setattr(quantized, "computes_in_few_bits", lambda device, fast=fast: fast)
            made.append(EightBitLinear(linear, numbers)(rows))
    assert torch.allclose(*made, atol=1e-5)


def test_a_processor_without_instructions_for_bfloat16_computes_the_same(monkeypatch):
    torch.manual_seed(0)
    network, rows = nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 32, bias=False)).bfloat16(), torch.randn(40, 96)
    with torch.inference_mode():
        expected = network(rows.bfloat16())
        monkeypatch.setattr(quantized, "computes_in_few_bits", lambda device: False)
        widen(network)
        made = network(rows.bfloat16())
    assert not any(isinstance(module, nn.Linear) for module in network.modules())
    assert made.dtype == torch.bfloat16
    assert torch.allclose(made.float(), expected.float(), atol=0.02)
