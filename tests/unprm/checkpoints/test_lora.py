"""Adapters are merged by PEFT; those that it would not read exactly, or not in bounded time, are refused."""

import json
import shutil
import warnings

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support import columns
from tests.tiny import write_base
from unprm.checkpoints import lora
from unprm.checkpoints.files import PrmFiles, load_base, load_merged
from unprm.errors import ModelInvalid
from unprm.models.load import load_engine

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def network(base):
    return load_base(base, torch.float32)


def by_peft(base, adapter, dtype):
    return PeftModel.from_pretrained(load_base(base, dtype), str(adapter)).merge_and_unload()


def loaded(base, adapter, dtype):
    return load_merged(PrmFiles(base, "base", adapter, "adapter", "model"), dtype)


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


EMBEDDINGS = {
    "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "output": {"target_modules": ["q_proj", "lm_head"]},
    "both": {"target_modules": ["embed_tokens", "lm_head"]},
    "one for both": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    "whole": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "whole output": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "some tokens": {"target_modules": ["q_proj"], "trainable_token_indices": [3, 5]},
    "neither": {"target_modules": ["q_proj"]},
}


def embeddings_tuned(place, kind, tied, options, save):
    """A tiny base whose embeddings are tied or not, and an adapter with random weights on them, saved so by PEFT."""
    network = write_network(place / "base", kind, tied)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's about all that is tried here
        tuned = get_peft_model(network, LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False, **options))
        for name, tensor in tuned.named_parameters():
            if "modules_to_save" in name or "trainable_tokens" in name:
                tensor.data += torch.randn_like(tensor) * 0.2
        tuned.save_pretrained(str(place / "adapter"), save_embedding_layers=save)
    return place / "base", place / "adapter"


def write_network(place, kind, tied):
    """Writes a tiny base into a directory, which may have a tokenizer of so many tokens, and loads it."""
    torch.manual_seed(1)
    shape = {
        "vocab_size": json.loads((place / "config.json").read_text())["vocab_size"] if place.exists() else 80,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
    }
    config = AutoConfig.for_model(kind, **shape, tie_word_embeddings=tied, bos_token_id=None)
    AutoModelForCausalLM.from_config(config).save_pretrained(place)
    return load_base(place, torch.float32)


@torch.no_grad()
def logits(network, ids=(3, 5, 7, 11, 3)):
    return network(torch.tensor([list(ids)])).logits[0]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("options", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize(("kind", "save"), [("qwen2", "auto"), ("qwen2", False), ("qwen2", True), ("llama", "auto")])
def test_adapters_on_embeddings_are_merged_as_peft_runs_them(kind, tied, options, save, tmp_path):
    """Where the output layer has the embedding's weights, an adapter on one of them leaves the other as it is."""
    if "ensure_weight_tying" in options and not tied:
        return
    base, adapter = embeddings_tuned(tmp_path, kind, tied, options, save)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = logits(PeftModel.from_pretrained(load_base(base, torch.float32), str(adapter)).eval())
    merged = loaded(base, adapter, torch.float32)
    assert torch.allclose(logits(merged), expected, atol=1e-4)
    output, embedding = merged.get_output_embeddings(), merged.get_input_embeddings()
    assert merged.config.tie_word_embeddings == (output.weight is embedding.weight)
    merged.save_pretrained(tmp_path / "merged")
    assert torch.allclose(logits(load_base(tmp_path / "merged", torch.float32)), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["embedding", "both", "one for both"])
def test_an_adapter_on_tied_embeddings_is_served_as_peft_runs_it(name, tmp_path):
    write_base(tmp_path / "base")
    base, adapter = embeddings_tuned(tmp_path, "qwen2", True, EMBEDDINGS[name], "auto")
    engine = load_engine(str(base), adapter=str(adapter), device="cpu", step_tag="ş", positive="+", negative="-")
    encoded = engine.format.encode("12 + 34", ["Step 1: 12 + 34 = 46.", "The answer is 5."])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = PeftModel.from_pretrained(load_base(base, torch.float32), str(adapter)).eval()
    found, verdicts = logits(tuned, encoded.ids)[list(encoded.positions)], engine.format.readout
    margins = found[:, verdicts.positive] - found[:, verdicts.negative]
    assert columns(engine.score([encoded])).values[0] == pytest.approx(margins.sigmoid().tolist(), abs=1e-5)


def test_an_adapter_for_a_resized_vocabulary_is_refused(tmp_path):
    network = write_network(tmp_path / "base", "qwen2", True)
    rows = len(network.get_input_embeddings().weight)
    network.resize_token_embeddings(rows + 2, mean_resizing=False)
    tuned = get_peft_model(network, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    tuned.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=True)
    with pytest.raises(ModelInvalid, match=rf"vocabulary was resized, .* has {rows + 2} rows and the base {rows}: mer"):
        loaded(tmp_path / "base", tmp_path / "adapter", torch.float32)


def test_an_adapter_that_repeats_layers_is_refused(tmp_path):
    network = write_network(tmp_path / "base", "llama", False)
    replicated = LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM", layer_replication=[(0, 2), (1, 2)])
    get_peft_model(network, replicated).save_pretrained(str(tmp_path / "adapter"))
    with pytest.raises(ModelInvalid, match=r"adapter_config\.json: layer_replication repeats layers of the base"):
        loaded(tmp_path / "base", tmp_path / "adapter", torch.float32)


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
@pytest.mark.parametrize("change", ["missing", "unknown", "shape"])
def test_what_does_not_fit_is_refused(base, adapter, tmp_path, change):
    place = changed(adapter, tmp_path / "adapter")
    tensors = load_file(place / lora.WEIGHTS)
    name = min(tensors)
    if change == "missing":
        del tensors[name]
    elif change == "unknown":
        tensors["other"] = torch.ones(1)
    else:
        tensors[name] = tensors[name][:, 1:].contiguous()
    save_file(tensors, place / lora.WEIGHTS)
    with pytest.raises(ModelInvalid, match="the adapter adapter does not fit the base base"):
        loaded(base, place, torch.float32)


def test_an_unknown_type_is_named_and_an_adapter_that_changes_nothing_is_told(base, adapter, tmp_path, caplog):
    place = changed(adapter, tmp_path / "adapter")
    loaded(base, place, torch.float32)
    assert not caplog.records
    tensors = load_file(place / lora.WEIGHTS)
    save_file({name: each * 0 if "lora_B" in name else each for name, each in tensors.items()}, place / lora.WEIGHTS)
    loaded(base, place, torch.float32)
    assert [record.getMessage() for record in caplog.records] == [
        "the adapter adapter changes nothing: every lora_B in it is zero"
    ]
    config = json.loads((place / lora.CONFIG).read_text())
    (place / lora.CONFIG).write_text(json.dumps(config | {"peft_type": "XLORA2"}))
    with pytest.raises(ModelInvalid, match="PEFT knows no peft_type 'XLORA2'"):
        loaded(base, place, torch.float32)


@pytest.mark.parametrize("name", ["adapter_config.json", lora.WEIGHTS])
def test_a_directory_without_an_adapter_is_refused(base, adapter, tmp_path, name):
    place = changed(adapter, tmp_path / "adapter")
    (place / name).unlink()
    with pytest.raises(ModelInvalid, match=rf"adapter has no {name}$"):
        loaded(base, place, torch.float32)
