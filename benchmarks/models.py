"""A PRM with realistic proportions and random weights, and inputs for it.

Qwen2 with Qwen2.5's vocabulary of 151,936 tokens and six layers as wide as those of its smallest model: 0.1 billion
parameters besides the embeddings. Random weights are as fast as trained ones.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from unprm import mini
from unprm.formats.unprm import PrmConfig
from unprm.models.checkpoint import load_tokenizer, read_tokenizer
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
    return len({item.needed[:k] for item in items for k in range(1, len(item.needed) + 1)})


def apart(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> float:
    """The largest absolute difference between corresponding scores."""
    return max(abs(a - b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True))
