"""A tiny random causal language model on disk, for tests of what loads, trains and scores models."""

import copy
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model

from training.mini import tokenizer
from unprm.engines.torch.quantized import Eight, quantize
from unprm.formats.unprm import PrmConfig
from unprm.models.checkpoint import load_tokenizer

WORDS = "Problem: what is 12 + 34 - 5? Step 1: 12 + 34 = 46. Step 2: 46 - 5 = 41. The answer is \\boxed{41}."


def write_base(directory: Path, seed: int = 0, layers: int = 2, window: int = 256) -> Path:
    """Writes a Qwen2 of random weights and its tokenizer."""
    words = tokenizer.train([WORDS] * 20 + ["ş"] * 20)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.2,  # large, so that scores differ visibly
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    words.save_pretrained(directory)
    return directory


def write_prm(directory: Path, name: str, seed: int = 0, window: int = 256, **layout: str) -> Path:
    """Writes a PRM without an adapter, on such a base; `layout` as in `PrmConfig.for_base`."""
    tokenizer = load_tokenizer(write_base(directory, seed, window=window))
    PrmConfig.for_base(tokenizer, name, ".", **layout).write(directory)
    return directory


def largest_error(numbers: Eight, device: str) -> float:
    """How far a token's last hidden state in eight bits is from that in bfloat16, as a share of its size: the most."""
    torch.manual_seed(0)
    shape = {"vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
    network = Qwen2Model(Qwen2Config(**shape, num_hidden_layers=4, num_key_value_heads=2)).to(device, torch.bfloat16)
    plain = copy.deepcopy(network.eval())
    quantize(network, numbers, torch.bfloat16)
    ids = torch.randint(0, 500, (1, 200), device=device)
    with torch.no_grad():
        expected, found = (model(ids).last_hidden_state.float() for model in (plain, network))
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())
