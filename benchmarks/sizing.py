"""What fits on a GPU, by the plan that the engine makes before it runs: `python -m benchmarks.sizing` prints the table
of docs/hardware.md. Nothing is run, and no GPU is needed."""

from collections.abc import Iterator

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2Model

from benchmarks.models import ONE_AND_A_HALF_BILLION, SEVEN_BILLION
from unprm.engines.torch.engine import planned, slot_bytes
from unprm.engines.torch.memory import cache_bytes, pass_tokens
from unprm.engines.torch.readers import AtPositions
from unprm.models.options import MEMORY, EngineOptions

HALF_A_BILLION = ONE_AND_A_HALF_BILLION | {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
}
MODELS = {"0.5B": HALF_A_BILLION, "1.5B": ONE_AND_A_HALF_BILLION, "7B": SEVEN_BILLION}
CARDS = {"24 GB": 24, "40 GB": 40, "80 GB": 80}
CONTEXT = 10**9
"""Bytes that CUDA itself takes on a card, about."""
VOTE = 150 + 64 * 300
"""Distinct tokens of a vote on 64 candidates of 300 tokens."""


def table() -> str:
    """What each model takes on each card, in Markdown."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| model | GPU | weights | a batch | prefix cache | its tokens | votes in it |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    options = EngineOptions()
    for name, shape in MODELS.items():
        reader = _reader(shape)
        slot = slot_bytes(reader)
        for card, size in CARDS.items():
            total = size * 10**9
            run = pass_tokens(options.batch_tokens, planned(reader, 0, options.batch_tokens), total)
            plan = planned(reader, options.max_solution_tokens, run)
            cached = cache_bytes(plan, slot, MEMORY, total - CONTEXT - plan.weights, total)
            sizes = (plan.weights, plan.slots + plan.activations, cached)
            shown = " | ".join(f"{each / 1e9:.1f} GB" for each in sizes)
            tokens = cached // slot
            yield f"| {name} | {card} | {shown} | {tokens:,} | {tokens // VOTE} |"


def _reader(shape: dict[str, int]) -> AtPositions:
    """A model of this shape in bf16 that has no numbers."""
    meta = torch.device("meta")
    with meta:
        network = Qwen2Model._from_config(Qwen2Config(**shape), dtype=torch.bfloat16)
        return AtPositions(network, nn.Linear(shape["hidden_size"], 1), meta)


if __name__ == "__main__":
    print(table())
