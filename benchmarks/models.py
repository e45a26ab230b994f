"""PRMs with realistic proportions and random weights, which are as fast as trained ones, and inputs for them."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from unprm import mini
from unprm.checkpoints.files import load_tokenizer, read_tokenizer
from unprm.formats.unprm import PrmConfig
from unprm.types import Encoded

VOCABULARY = 151_936
"""Tokens of Qwen2.5."""
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
"""Six layers as wide as those of the smallest Qwen2.5: 0.1 billion parameters besides the embeddings."""
SEVEN_BILLION = {
    "vocab_size": VOCABULARY,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
"""Qwen2.5-Math-7B."""
ONE_AND_A_HALF_BILLION = SEVEN_BILLION | {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
"""Qwen2.5-Math-1.5B, and Skywork's PRM of this size."""
SHARD = 5 * 10**9
"""Bytes of a file of weights."""
CPU = torch.device("cpu")
STEP = 20
"""Tokens of a step."""
QUESTION, CANDIDATE = 100, 200
"""Tokens of a question, and of a candidate solution on average."""


def write(place: Path, shape: Mapping[str, int] = SMALL) -> Path:
    """Writes a PRM of this shape with the embedded model's tokenizer."""
    torch.manual_seed(0)
    Qwen2ForCausalLM(write_tokenizer(place, shape)).save_pretrained(place)
    PrmConfig.for_base(load_tokenizer(place), "benchmark", ".").write(place)
    return place


def write_shards(
    place: Path, shape: Mapping[str, int], adapter: bool, shard: int = SHARD, device: torch.device = CPU
) -> Path:
    """Writes a PRM in bfloat16, as a base with an adapter or merged, with one shard of at most `shard` bytes in memory
    at a time, whose numbers are drawn on `device`; returns its directory."""
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict  # slow to import

    torch.manual_seed(0)
    config = write_tokenizer(place, shape)
    with torch.device("meta"):
        network = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    network.config.save_pretrained(place)
    weights = dict(network.named_parameters())
    shards = split_torch_state_dict_into_shards(weights, max_shard_size=shard)
    for file, names in shards.filename_to_tensors.items():
        save_file({name: _random(name, weights[name], device) for name in names}, place / file, {"format": "pt"})
    index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
    (place / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    if not adapter:
        PrmConfig.for_base(load_tokenizer(place), "size", ".").write(place)
        return place
    prm = place / "prm"
    prm.mkdir()
    lora = LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    tuned = get_peft_model(network, lora, low_cpu_mem_usage=True)
    tensors = get_peft_model_state_dict(tuned, save_embedding_layers=False)
    drawn = {name: _random(name, tensor, device) for name, tensor in tensors.items()}
    save_file(drawn, prm / "adapter_model.safetensors")
    tuned.peft_config["default"].save_pretrained(str(prm))
    PrmConfig.for_base(load_tokenizer(place), "size", "./..").write(prm)
    return prm


def _random(name: str, like: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = torch.empty_like(like, device=device)
    return (made.fill_(1.0) if name.endswith("norm.weight") else made.normal_(0.0, 0.02)).cpu()


def write_tokenizer(place: Path, shape: Mapping[str, int]) -> Qwen2Config:
    """Writes the embedded model's tokenizer; returns the configuration of a model of this shape with it."""
    tokenizer = read_tokenizer(mini.BASE)
    tokenizer.save_pretrained(place)
    return Qwen2Config(**shape, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)


def tokens(rng: random.Random, count: int) -> list[int]:
    """Random token ids, without special tokens at the ends of steps."""
    return rng.choices(range(300, VOCABULARY), k=count)


def scored(ids: Sequence[int], question: int = QUESTION) -> Encoded:
    """A sequence with scored positions every `STEP` tokens after the question, and at its end."""
    ends = [*range(question + STEP - 1, len(ids) - 1, STEP), len(ids) - 1]
    return Encoded(tuple(ids), tuple(ends))


def vote(rng: random.Random, candidates: int = 64) -> list[Encoded]:
    """Candidates of one question, with lengths of 0.5 to 1.5 times the average."""
    question = tokens(rng, QUESTION)
    lengths = (rng.randint(CANDIDATE // 2, CANDIDATE * 3 // 2) for _ in range(candidates))
    return [scored(question + tokens(rng, length)) for length in lengths]


def unlike(rng: random.Random, solutions: int = 64) -> list[Encoded]:
    """One solution for each of `solutions` questions."""
    return [vote(rng, 1)[0] for _ in range(solutions)]


def beam_search(rng: random.Random, width: int = 8, depth: int = 10) -> list[list[Encoded]]:
    """The batches that a beam search scores, one per step: `width` beams with `width` continuations each, of which
    `width` random ones are kept."""
    beams = [tokens(rng, QUESTION)] * width
    batches = []
    for _ in range(depth):
        grown = [beam + tokens(rng, STEP) for beam in beams for _ in range(width)]
        batches.append([scored(ids) for ids in grown])
        beams = rng.sample(grown, width)
    return batches


def distinct(items: Sequence[Encoded]) -> int:
    """Minimum number of tokens that a causal model must run for these items: their distinct prefixes."""
    return len({item.ids_to_last_position[:k] for item in items for k in range(1, len(item.ids_to_last_position) + 1)})


def apart(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> float:
    """The largest absolute difference between corresponding scores."""
    return max(abs(a - b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True))
