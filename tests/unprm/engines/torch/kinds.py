"""Tiny models of the kinds that change their output layer's logits."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.tiny import write_base

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 256, "initializer_range": 0.3}
KINDS: dict[str, dict[str, Any]] = {
    "qwen2": SHAPE,
    "granite": SHAPE | {"logits_scaling": 4.0},
    "cohere": SHAPE | {"logit_scale": 0.0625},
    "cohere2": SHAPE | {"logit_scale": 0.25},
    "hyperclovax": SHAPE | {"logits_scaling": 0.5},
    "gptj": GPT,
    "phi": SHAPE,
}
CAPPED = SHAPE | {"head_dim": 8, "final_logit_softcapping": 30.0}


def write(kind: str, directory: Path, **more: Any) -> Path:
    """Writes a tiny model of a kind, and a tokenizer."""
    write_base(directory)
    torch.manual_seed(0)
    shape = KINDS.get(kind, CAPPED)
    size = AutoConfig.from_pretrained(directory).vocab_size
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, vocab_size=size, **shape | more))
    output = network.get_output_embeddings()
    if output.bias is not None:
        torch.nn.init.normal_(output.bias)
    network.save_pretrained(directory)
    return directory
