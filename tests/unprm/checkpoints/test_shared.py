"""Networks with an adapter each, beside a base that they have in common."""

import gc
from itertools import chain

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from tests.tiny import write_adapter
from unprm.checkpoints import lora, shared
from unprm.checkpoints.files import PrmFiles, load_base, load_merged
from unprm.checkpoints.shared import load_adapted, load_shared
from unprm.engines.torch.memory import weight_bytes
from unprm.errors import ModelInvalid

CPU = torch.device("cpu")


def files(base, adapter):
    return PrmFiles(base, "base", adapter, "adapter", "model")


def beside(base, adapter, dtype=torch.float32):
    return load_adapted(files(base, adapter), dtype, CPU, 2)


def places(network):
    return {tensor.data_ptr() for tensor in chain(network.parameters(), network.buffers())}


@torch.no_grad()
def logits(network):
    return network(torch.tensor([[3, 5, 7, 11, 3]])).logits[0]


OPTIONS = [
    {},
    {"use_rslora": True, "lora_dropout": 0.5, "init_lora_weights": "gaussian"},
    {"target_modules": "all-linear", "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.1.self_attn.q_proj": 3}},
    {"layers_to_transform": [1], "layers_pattern": "layers"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_what_is_beside_the_base_computes_what_is_merged(base, tmp_path, options):
    adapter = tmp_path / "adapter"
    tuned = get_peft_model(load_base(base, torch.float32), LoraConfig(**{"target_modules": ["q_proj"]} | options))
    torch.manual_seed(0)
    for name, tensor in tuned.named_parameters():
        if ".lora_" in name:
            tensor.data = torch.randn_like(tensor) * 0.2
    tuned.save_pretrained(str(adapter))
    expected = logits(load_merged(files(base, adapter), torch.float32))
    assert torch.allclose(logits(beside(base, adapter)), expected, atol=1e-5)
    assert not torch.allclose(logits(load_base(base, torch.float32)), expected, atol=0.1)


def test_a_base_is_in_memory_once_and_only_while_it_is_used(base, adapter, tmp_path):
    other = write_adapter(base.parent / "other", base, 2, "other", r=8, target_modules=["o_proj"])
    gc.collect()
    assert not shared._BASES
    one, two, plain = beside(base, adapter), beside(base, other), load_shared(base, torch.float32, CPU, 2)
    before = logits(plain)
    assert places(one) & places(two) == places(plain)
    assert not places(plain) & places(beside(base, adapter, torch.bfloat16))  # of another type
    assert torch.equal(before, logits(load_base(base, torch.float32)))
    sizes = [load_file(place / lora.WEIGHTS) for place in (adapter, other)]
    own = sum(tensor.nbytes for tensors in sizes for tensor in tensors.values())
    assert weight_bytes([one]) + weight_bytes([two]) - own == pytest.approx(
        weight_bytes([load_base(base, torch.float32)])
    )
    del one, two
    gc.collect()
    assert list(shared._BASES) == [(base.resolve(), torch.float32, CPU)]
    del plain
    gc.collect()
    assert not shared._BASES


REFUSED = {
    "use_dora": {"use_dora": True},
    "bias": {"bias": "lora_only"},
    "lora_bias": {"lora_bias": True},
    "modules_to_save": {"modules_to_save": ["lm_head"]},
    "init_lora_weights": {"init_lora_weights": "pissa"},
    "trainable_token_indices": {"trainable_token_indices": [3, 5]},
    r"base_model\.model\.lm_head\.lora_A\.weight": {"target_modules": ["q_proj", "lm_head"]},
    r"base_model\.model\.model\.embed_tokens\.lora_embedding_A": {"target_modules": ["q_proj", "embed_tokens"]},
}


@pytest.mark.filterwarnings("ignore")  # PEFT's about what is tried here
@pytest.mark.parametrize("field", REFUSED)
def test_an_adapter_that_would_change_its_base_is_refused(base, tmp_path, field):
    options = {"target_modules": ["q_proj"]} | REFUSED[field]
    tuned = get_peft_model(load_base(base, torch.float32), LoraConfig(**options, task_type="CAUSAL_LM"))
    tuned.save_pretrained(str(tmp_path), save_embedding_layers=False)
    with pytest.raises(ModelInvalid, match=f"adapter does not share its base with other adapters, for {field}: only"):
        beside(base, tmp_path)


def test_so_is_one_that_brings_the_embeddings_of_its_own(base, adapter, tmp_path):
    plain = load_shared(base, torch.float32, CPU, 2)
    place = write_adapter(base.parent / "embedded", base, 2, "embedded")
    name = "base_model.model.model.embed_tokens.weight"
    embeddings = {name: torch.zeros_like(plain.get_input_embeddings().weight)}
    save_file(load_file(place / lora.WEIGHTS) | embeddings, place / lora.WEIGHTS)
    with pytest.raises(ModelInvalid, match=rf"for {name}: only LoRA of linear layers"):
        beside(base, place)
    assert plain.get_input_embeddings().weight.any()
