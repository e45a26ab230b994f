"""Adapters are merged as PEFT merges them, bit for bit, and those that ask for more than plain LoRA by PEFT."""

import dataclasses
import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from unprm.checkpoints import lora
from unprm.checkpoints.files import PrmFiles, load_base, load_merged
from unprm.errors import ModelInvalid

PLAIN = {"r", "lora_alpha", "target_modules"}
"""What a plain adapter says of itself."""
NOTHING = {
    "base_model_name_or_path": "elsewhere",
    "inference_mode": False,
    "lora_dropout": 0.5,
    "megatron_core": "other",
    "peft_version": "0.1.0",
    "qalora_group_size": 8,
    "revision": "other",
}
"""Fields that change nothing, with other values than those of the adapter."""
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
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_a_plain_adapter_is_merged_as_by_peft(base, adapter, tmp_path, dtype, weights):
    place = changed(adapter, tmp_path / "adapter", lora_alpha=5)
    path = place / lora.WEIGHTS
    save_file({name: tensor.to(weights) for name, tensor in load_file(path).items()}, path)
    found = load_base(base, dtype)
    before = load_base(base, dtype)
    assert lora.merge_plain(found, place)
    assert same(found, by_peft(base, place, dtype))
    assert not same(found, before)


def test_layers_may_be_named_in_full_and_share_their_weights(base, tmp_path):
    torch.manual_seed(0)
    names = ["lm_head", "model.layers.1.self_attn.q_proj", "down_proj"]
    config = LoraConfig(r=3, target_modules=names, init_lora_weights=False, task_type="CAUSAL_LM")
    network = load_base(base, torch.float32)
    network.config.tie_word_embeddings = True
    network.tie_weights()
    network.save_pretrained(tmp_path / "base")
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        get_peft_model(network, config).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    found = load_base(tmp_path / "base", torch.float32)
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert lora.merge_plain(found, tmp_path / "adapter")
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        expected = by_peft(tmp_path / "base", tmp_path / "adapter", torch.float32)
    assert same(found, expected)


def test_fields_without_effect_have_none(base, adapter, tmp_path):
    place = changed(adapter, tmp_path / "adapter", **NOTHING)
    network = load_base(base, torch.float32)
    assert lora.merge_plain(network, place)
    assert same(network, by_peft(base, place, torch.float32))
    assert same(network, by_peft(base, adapter, torch.float32))


OTHERS = {field.name for field in dataclasses.fields(LoraConfig)} - PLAIN - NOTHING.keys()


@pytest.mark.parametrize("field", sorted(OTHERS | {"of_a_later_version"}))
def test_whatever_else_an_adapter_asks_for_is_left_to_peft(network, adapter, tmp_path, field):
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert not lora.merge_plain(network, changed(adapter, tmp_path / "adapter", **{field: "something"}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
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
    plainly = lora.merge_plain(load_base(base, dtype), tmp_path / "adapter")
    assert plainly is (options == {"target_modules": "all-linear"})  # which PEFT writes as the names
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


@pytest.mark.parametrize(
    "change", ["missing", "unknown", "shape", "rank", "no targets", "kind of layer", "no configuration"]
)
def test_what_does_not_fit_is_left_to_peft(network, adapter, tmp_path, change):
    fields = {
        "rank": {"r": 2},
        "no targets": {"target_modules": ["x"]},
        "kind of layer": {"target_modules": ["q_proj", "v_proj", "mlp"]},
    }
    place = changed(adapter, tmp_path / "adapter", **fields.get(change, {}))
    tensors = load_file(place / lora.WEIGHTS)
    name = min(tensors)
    if change == "missing":
        del tensors[name]
    elif change == "unknown":
        tensors["other"] = torch.ones(1)
    elif change == "shape":
        tensors[name] = tensors[name][:, 1:].contiguous()
    elif change == "no configuration":
        (place / "adapter_config.json").unlink()
    save_file(tensors, place / lora.WEIGHTS)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert not lora.merge_plain(network, place)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
