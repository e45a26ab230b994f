"""Linear layers in eight bits: near to the plain ones, and a row's result is its own."""

import pytest
import torch
from torch import nn

from unprm import mini
from unprm.engines.load import load_engine
from unprm.engines.quantized import EightBitLinear
from unprm.errors import ModelInvalid

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


@pytest.mark.parametrize(("numbers", "tolerance"), NUMBERS)
def test_a_model_in_eight_bits_tells_right_from_wrong(numbers, tolerance):
    problem = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    own, plain = (load_engine(mini.NAME, device="cpu", dtype=dtype) for dtype in (numbers, "float32"))
    assert own.description.dtype == numbers
    items = [own.format.encode(problem, [f"Step 1: 23 + 45 = {made}."]) for made in (68, 78, 69)]
    for values, told in zip(own.score(items).scores, plain.score(items).scores, strict=True):
        assert values == pytest.approx(told, abs=0.1)


def test_vllm_is_not_asked_for_int8(monkeypatch):
    monkeypatch.setattr("unprm.engines.load.find_spec", lambda name: object())
    with pytest.raises(ModelInvalid, match="use --engine torch"):
        load_engine(mini.NAME, engine="vllm", dtype="int8")
