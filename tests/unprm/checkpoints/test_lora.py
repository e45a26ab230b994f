"""Adapters are merged by PEFT; those that it would not read exactly, or not in bounded time, are refused."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from unprm.checkpoints import lora
from unprm.checkpoints.bases import BASES
from unprm.checkpoints.files import ADAPTERS, PrmFiles, load_base, load_merged
from unprm.errors import ModelInvalid

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def network(base):
    return load_base(base, torch.float32)


def by_peft(base, adapter, dtype):
    return PeftModel.from_pretrained(load_base(base, dtype), str(adapter)).merge_and_unload()


def loaded(base, adapter, dtype):
    return load_merged(PrmFiles(base, "base", None, adapter, "adapter", "model"), dtype)


def same(one, other):
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def changed(adapter, place, **fields):
    """A copy of an adapter whose configuration says something else."""
    shutil.copytree(adapter, place)
    path = place / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return place


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True},
        {"use_dora": True},
        {"rank_pattern": {"q_proj": 2}},
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"rank_pattern": {"^model.layers.0.self_attn.q_proj": 2}, "alpha_pattern": {"layers.1.self_attn.q_proj": 3}},
        {"layers_to_transform": [1], "layers_pattern": "layers"},
    ],
)
def test_what_peft_merges_is_loaded(base, tmp_path, options, dtype):
    torch.manual_seed(0)
    plain = {"r": 4, "target_modules": ["q_proj"], "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    tuned = get_peft_model(load_base(base, torch.float32), LoraConfig(**plain | options))
    tuned.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    assert not same(loaded(base, tmp_path / "adapter", dtype), load_base(base, dtype))
    assert same(loaded(base, tmp_path / "adapter", dtype), by_peft(base, tmp_path / "adapter", dtype))


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": r"(.*.*)*\.[qv]_proj"},
        {"target_modules": ["q_proj"], "exclude_modules": "v.*"},
        {"modules_to_save": ["lm_head", "(?:x+x+)+y"]},
        {"rank_pattern": {"q_proj": 4, r".*\.1\.v_proj": 2}},
        {"alpha_pattern": {"[qv]_proj": 2}},
        {"layers_to_transform": [0], "layers_pattern": ["layers", "h|layer"]},
        {"peft_type": "IA3", "feedforward_modules": "mlp.+"},
    ],
)
def test_patterns_of_layers_are_refused(base, adapter, tmp_path, fields):
    """Such as take a regular expression's search for ever, which holds the whole process."""
    place = changed(adapter, tmp_path / "adapter", **fields)
    name = list(fields)[-1]
    with pytest.raises(ModelInvalid, match=rf"adapter_config\.json: {name} has a pattern.*write all-linear"):
        loaded(base, place, torch.float32)
    whole = shutil.copytree(base, tmp_path / "whole")
    shutil.copytree(place, whole, dirs_exist_ok=True)
    with pytest.raises(ModelInvalid, match=f"{name} has a pattern"):
        load_base(whole, torch.float32)


@pytest.mark.filterwarnings("ignore:Found missing adapter keys")
@pytest.mark.parametrize("change", ["missing", "unknown", "shape", "no configuration"])
def test_what_does_not_fit_is_refused(base, adapter, tmp_path, change):
    place = changed(adapter, tmp_path / "adapter")
    tensors = load_file(place / lora.WEIGHTS)
    name = min(tensors)
    if change == "missing":
        del tensors[name]
    elif change == "unknown":
        tensors["other"] = torch.ones(1)
    elif change == "shape":
        tensors[name] = tensors[name][:, 1:].contiguous()
    else:
        (place / "adapter_config.json").unlink()
    save_file(tensors, place / lora.WEIGHTS)
    with pytest.raises(ModelInvalid, match="the adapter adapter does not fit the base base"):
        loaded(base, place, torch.float32)


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "intermediate", "heads"),
    [("unprm-qwen-0.5b", 24, 896, 4864, 14), ("unprm-qwen-1.5b", 28, 1536, 8960, 12)],
)
def test_the_adapters_of_the_package_fit_their_bases(name, layers, hidden, intermediate, heads):
    shape = Qwen2Config(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=intermediate,
                        num_attention_heads=heads, num_key_value_heads=2)  # fmt: skip
    with torch.device("meta"):
        network = Qwen2ForCausalLM(shape)
        network.name_or_path = lora.base(ADAPTERS[name])[0]
        fitting = get_peft_model(network, LoraConfig.from_pretrained(ADAPTERS[name]))
    stored = load_file(ADAPTERS[name] / "adapter_model.safetensors")
    expected = get_peft_model_state_dict(fitting, save_embedding_layers=False)
    assert {key: value.shape for key, value in stored.items()} == {key: value.shape for key, value in expected.items()}
    assert network.name_or_path in BASES
