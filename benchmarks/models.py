"""A PRM of real proportions and random weights, and inputs for it.

Qwen2 with the 151,936 words of Qwen2.5, in six layers as wide as those of its smallest model: 0.1 billion parameters
beside the embeddings. Random weights take as long as others.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from unprm import mini
from unprm.engines.checkpoint import load_tokenizer, read_tokenizer
from unprm.formats.unprm import PrmConfig
from unprm.types import Encoded

VOCABULARY = 151_936
STEP = 20
"""Tokens of a step."""
QUESTION, CANDIDATE = 100, 200
"""Tokens of a question, and of a candidate solution on average."""


def write(place: Path) -> Path:
    """Writes a PRM of this shape with the embedded model's tokenizer."""
    torch.manual_seed(0)
    tokenizer = read_tokenizer(mini.BASE)
    shape = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=6,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(shape).save_pretrained(place)
    tokenizer.save_pretrained(place)
    PrmConfig.for_base(load_tokenizer(place), "benchmark", ".").write(place)
    return place


def tokens(rng: random.Random, count: int) -> list[int]:
    """Random ids; where a step ends there is nothing special about them."""
    return rng.choices(range(300, VOCABULARY), k=count)


def scored(ids: Sequence[int], question: int = QUESTION) -> Encoded:
    """A sequence that is scored every `STEP` tokens after the question, and at its end."""
    ends = [*range(question + STEP - 1, len(ids) - 1, STEP), len(ids) - 1]
    return Encoded(tuple(ids), tuple(ends))


def vote(rng: random.Random, candidates: int = 64) -> list[Encoded]:
    """Candidates of one question, half to one and a half times the average long."""
    question = tokens(rng, QUESTION)
    lengths = (rng.randint(CANDIDATE // 2, CANDIDATE * 3 // 2) for _ in range(candidates))
    return [scored(question + tokens(rng, length)) for length in lengths]


def unlike(rng: random.Random, solutions: int = 64) -> list[Encoded]:
    """One solution for each of `solutions` questions."""
    return [vote(rng, 1)[0] for _ in range(solutions)]


def beam_search(rng: random.Random, width: int = 8, depth: int = 10) -> list[list[Encoded]]:
    """What a beam search scores after every step: `width` beams with as many continuations each, of which `width` at
    random go on."""
    beams = [tokens(rng, QUESTION)] * width
    batches = []
    for _ in range(depth):
        grown = [beam + tokens(rng, STEP) for beam in beams for _ in range(width)]
        batches.append([scored(ids) for ids in grown])
        beams = rng.sample(grown, width)
    return batches


def distinct(items: Sequence[Encoded]) -> int:
    """Tokens that a causal model has to run for these items at the least."""
    return len({item.needed[:k] for item in items for k in range(1, len(item.needed) + 1)})


def apart(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> float:
    """The largest difference of two scores."""
    return max(abs(a - b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True))
