"""A tiny random causal language model on disk, for tests of what loads, trains and scores models."""

from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from training.mini import tokenizer
from unprm.engines.checkpoint import load_tokenizer
from unprm.formats.unprm import PrmConfig

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
