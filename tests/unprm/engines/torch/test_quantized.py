"""Linear layers in int8: near to the plain ones, and a row's result is its own, whatever a CPU multiplies fast."""

import copy
from contextlib import closing

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2Model

from tests import checkpoints
from tests.support import columns
from unprm import mini
from unprm.engines.torch.quantized import Int8Linear, quantize, widen_all
from unprm.errors import ModelInvalid
from unprm.models.load import LARGE, _check_dtype, _pick_dtype, load_engine

on_any_processor = pytest.mark.parametrize("widened", [False, True])
TOLERANCE = 0.02


@on_any_processor
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_near_to_the_plain_one(bias, widened):
    torch.manual_seed(0)
    linear = nn.Linear(96, 64, bias=bias)
    rows = torch.randn(2, 5, 96) * torch.tensor([0.01, 1.0, 100.0, 1e-3, 7.0])[:, None]  # a scale for each
    with torch.inference_mode():
        expected, made = linear(rows), Int8Linear(linear, widened)(rows)
    sizes = (expected - (linear.bias if bias else 0)).norm(dim=-1, keepdim=True)
    assert made.shape == expected.shape
    assert ((made - expected).norm(dim=-1, keepdim=True) / sizes).max() < TOLERANCE


@on_any_processor
def test_the_largest_of_a_row_keeps_its_sign_in_bfloat16(widened):
    torch.manual_seed(0)
    linear = nn.Linear(256, 1, bias=False).bfloat16()
    linear.weight.data.fill_(1 / 256)
    rows = torch.zeros(4096, 256).bfloat16()
    rows[:, 0] = torch.rand(4096).bfloat16() + 0.5  # alone in its row, it is the largest
    with torch.inference_mode():
        expected, made = linear(rows).float(), Int8Linear(linear, widened)(rows).float()
    assert torch.allclose(made, expected, rtol=TOLERANCE)


@on_any_processor
def test_what_else_is_in_the_batch_does_not_matter(widened):
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(96, 64), widened)
    rows = torch.randn(40, 96)
    with torch.inference_mode():
        together = layer(rows)
        louder = layer(torch.cat([rows[:1], 1000 * rows[1:]]))
    assert torch.allclose(louder[0], together[0], atol=1e-5)


@on_any_processor
def test_rows_of_zeros_are_no_matter(widened):
    linear = nn.Linear(32, 16)
    linear.weight.data[3] = 0
    with torch.inference_mode():
        made = Int8Linear(linear, widened)(torch.zeros(2, 32))
    assert torch.equal(made, linear.bias.detach().expand(2, 16))


@on_any_processor
def test_hidden_states_are_near_to_those_in_bfloat16(widened):
    torch.manual_seed(0)
    shape = {"vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
    network = Qwen2Model(Qwen2Config(**shape, num_hidden_layers=4, num_key_value_heads=2)).bfloat16().eval()
    plain = copy.deepcopy(network).float()
    quantize(network, widened)
    ids = torch.randint(0, 500, (1, 200))
    with torch.no_grad():
        expected, found = (model(ids).last_hidden_state for model in (plain, network))
    assert ((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max() < 0.05


def test_a_model_in_int8_tells_right_from_wrong():
    problem = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    rounded, plain = (load_engine(mini.NAME, device="cpu", dtype=dtype) for dtype in ("int8", "float32"))
    assert rounded.description.dtype == "int8"
    items = [rounded.format.encode(problem, [f"Step 1: 23 + 45 = {made}."]) for made in (68, 78, 69)]
    for values, expected in zip(columns(rounded.score(items)).values, columns(plain.score(items)).values, strict=True):
        assert values == pytest.approx(expected, abs=0.1)


def test_an_output_layer_stored_in_bfloat16_reads_what_int8_layers_made(tmp_path):
    places = [checkpoints.write("eurus", tmp_path / str(seed), seed=seed) for seed in range(2)]
    for place in places:
        AutoModelForCausalLM.from_pretrained(place, dtype=torch.bfloat16).save_pretrained(place)
    model, reference = map(str, places)
    rounded, plain = (
        load_engine(model, family="eurus", reference=reference, device="cpu", dtype=dtype)
        for dtype in ("int8", "float32")
    )
    items = [plain.format.encode("1 + 1?", ["It is 2.", "So 3."])]
    assert columns(rounded.score(items)).values[0] == pytest.approx(columns(plain.score(items)).values[0], abs=0.05)


def test_a_gpu_is_not_asked_for_what_it_does_not_compute(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ModelInvalid, match="int8 is computed on CPUs alone: on a GPU use --dtype bfloat16"):
        _check_dtype("int8", gpu)
    with pytest.raises(ModelInvalid, match="A100 does not compute in float8: use --dtype bfloat16"):
        _check_dtype("float8", gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    _check_dtype("float8", gpu)
    for dtype in ("int8", "float8"):
        _check_dtype(dtype, torch.device("cpu"))


@pytest.mark.parametrize(("device", "stored", "fast", "expected"), [
    ("cuda", 0, False, torch.bfloat16),
    ("cpu", LARGE, True, torch.bfloat16),
    ("cpu", LARGE, False, torch.float32),
    ("cpu", LARGE - 1, True, torch.float32),
])  # fmt: skip
def test_auto_is_bfloat16_where_that_is_fast_and_near_enough(device, stored, fast, expected):
    assert _pick_dtype("auto", device, stored, fast) == _pick_dtype("float8", device, stored, fast) == expected
    assert _pick_dtype("bfloat16", device, stored, fast) == torch.bfloat16
    assert _pick_dtype("float32", device, stored, fast) == _pick_dtype("int8", device, stored, fast) == torch.float32


def test_the_embedded_model_scores_the_same_on_every_cpu():
    with closing(load_engine(mini.NAME, device="cpu")) as engine:
        assert engine.description.dtype == "float32"


def test_vllm_is_not_asked_for_int8(monkeypatch):
    monkeypatch.setattr("unprm.models.load.find_spec", lambda name: object())
    with pytest.raises(ModelInvalid, match="use --engine torch"):
        load_engine(mini.NAME, engine="vllm", dtype="int8")


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_float8_is_vllm_s(engine):
    with pytest.raises(ModelInvalid, match="float8 is computed by vLLM alone: use --engine vllm, or --dtype bfloat16"):
        load_engine(mini.NAME, engine=engine, device="cpu", dtype="float8")


def test_vllm_alone_splits_a_model_over_gpus():
    with pytest.raises(ModelInvalid, match="--tensor-parallel-size is for --engine vllm; the model's engine is torch"):
        load_engine(mini.NAME, tensor_parallel_size=2)


def test_products_in_float32_of_what_is_in_int8_are_the_same():
    torch.manual_seed(0)
    linear, rows = nn.Linear(96, 64), torch.randn(40, 96)
    with torch.inference_mode():
        made = [Int8Linear(linear, widened)(rows) for widened in (False, True)]
    assert torch.allclose(*made, atol=1e-5)


def test_so_are_those_of_what_is_in_bfloat16():
    torch.manual_seed(0)
    network, rows = nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 32, bias=False)).bfloat16(), torch.randn(40, 96)
    with torch.inference_mode():
        expected = network(rows.bfloat16())
        widen_all(network)
        made = network(rows.bfloat16())
    assert not any(isinstance(module, nn.Linear) for module in network.modules())
    assert made.dtype == torch.bfloat16
    assert torch.allclose(made.float(), expected.float(), atol=0.02)
