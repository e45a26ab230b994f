"""The way of a GPU without one: whole scoring passes at real dimensions on a fake card, which checks devices, shapes
and types and counts operations and memory."""

import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn.attention.varlen import varlen_attn
from transformers import LlamaConfig, LlamaModel, MistralConfig, MistralModel, Qwen2Config, Qwen2Model

from benchmarks import models
from benchmarks.models import SEVEN_BILLION
from tests.unprm.engines.torch.fake_card import CardEngine, fake_card
from unprm.engines.torch.graphs import PLANNED
from unprm.engines.torch.quantized import quantize
from unprm.types import Encoded, MemoryPlan

EIGHT_BILLION = SEVEN_BILLION | {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""Llama 3.1 8B; Mistral 7B has fewer words."""
HALF = torch.bfloat16
WINDOW, PASS = 256, 4096
LAYERS = 6
"""Of the models that are run in a type of 16 bits or more: each layer does the same."""


@dataclass(frozen=True)
class Found:
    """`loading`, `most`: the most bytes held on the card while the model was loaded, and afterwards. `linear`:
    multiplications of the linear layers for a token. `again`: tokens that were run when the vote was scored again."""

    loading: int
    plan: MemoryPlan
    tokens: int
    flops: int
    linear: int
    most: int
    again: int


def _items() -> list[Encoded]:
    return models.vote(random.Random(0), candidates=40)


def _of_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
    """`varlen_attn` as it was; the present one refuses fewer key heads unless it is told."""
    return varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale=scale, window_size=window_size)


def _of_2_10(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
    """The first one, which isn't called."""


def _run(kind: str, dtype: torch.dtype, int8: bool = False, function: Callable[..., Any] = varlen_attn) -> Found:
    """Scores a vote twice, in a process of its own."""
    shapes = {
        "qwen2": (Qwen2Model, Qwen2Config(**SEVEN_BILLION)),
        "llama": (LlamaModel, LlamaConfig(**EIGHT_BILLION)),
        "mistral": (MistralModel, MistralConfig(**EIGHT_BILLION, sliding_window=WINDOW)),
    }
    make, config = shapes[kind]
    if not int8:
        config.num_hidden_layers = LAYERS
    with fake_card(function) as card:
        network = make._from_config(config, dtype=dtype).eval()
        linear = sum(each.in_features * each.out_features for each in network.modules() if isinstance(each, nn.Linear))
        if int8:
            quantize(network, widened=False)
        loading, items = card.live.peak, _items()
        engine = CardEngine(card, network, PASS, 2**30)
        card.reset()
        engine.score(items)
        first, most = card.count, card.live.peak
        card.reset()
        engine.score(items)
        again, plan = card.count.tokens, engine.description.memory
        return Found(loading, plan, first.tokens, first.flops, linear, most, again)


@dataclass(frozen=True)
class Launched:
    """What is launched for a solution, as it is and recorded; `planned`, `most`: bytes of activations, by the plan and
    found, of the passes that are recorded."""

    plain: int
    recorded: int
    planned: int
    most: int


def _launch(layers: int) -> Launched:
    """Scores a solution, in a process of its own."""
    solution = models.vote(random.Random(0), candidates=1)
    with fake_card() as card:
        network = Qwen2Model._from_config(Qwen2Config(**SEVEN_BILLION | {"num_hidden_layers": layers}), dtype=HALF)
        engine = CardEngine(card, network.eval(), PASS, 2**30)
        engine.score(solution)
        plain = len(card.count.operations)
        engine.forget()
        card.reset()
        before = card.live.now
        with patch.object(card, "_attention", lambda *given: 0):  # it counts real segments
            engine.record(lambda run: (run(), int)[1])
        most = card.live.peak - before
        card.reset()
        engine.score(solution)
        activations = engine.description.memory.activations // PASS * PLANNED
        return Launched(plain, len(card.count.operations), activations, most)


@pytest.fixture(scope="module")
def on_a_card():
    """Runs a function, `_run` if none is named, in a process of its own, whose PyTorch has the fake card."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield lambda *arguments: pool.submit(*([] if callable(arguments[0]) else [_run]), *arguments).result()


def test_a_recorded_solution_is_launched_at_once(on_a_card):
    few, many = on_a_card(_launch, 2), on_a_card(_launch, 8)
    assert many.plain > 150
    assert few.recorded == many.recorded <= 14
    assert many.most <= many.planned


def _attention(layers: int, wide: int, window: int | None) -> int:
    """Operations for each pair of a token and one that it sees: two products as wide as all heads together."""
    seen = {item.ids[:end]: end for item in _items() for end in range(1, len(item.ids_to_last_position) + 1)}
    return 4 * layers * wide * sum(min(end, window or end) for end in seen.values())


@pytest.mark.parametrize(
    ("kind", "wide", "window"), [("qwen2", 3584, None), ("llama", 4096, None), ("mistral", 4096, WINDOW)]
)
def test_a_whole_pass_stays_on_the_card_and_does_the_arithmetic_it_must(on_a_card, kind, wide, window):
    found = on_a_card(kind, torch.bfloat16)
    assert found.tokens == models.distinct(_items())
    assert found.flops == 2 * found.linear * found.tokens + _attention(LAYERS, wide, window) + _head(wide)
    assert found.again == 0
    plan = found.plan
    assert found.most == pytest.approx(plan.weights + plan.slots + plan.activations, rel=0.02)
    assert found.most - plan.weights - plan.slots == pytest.approx(plan.activations, rel=0.05)


def _head(hidden: int) -> int:
    scored = {item.ids[: place + 1] for item in _items() for place in item.positions}
    return 2 * hidden * len(scored)


def test_int8_takes_half_the_memory_and_no_two_copies_are_held(on_a_card):
    found = on_a_card("qwen2", torch.bfloat16, True)
    bfloat16 = found.plan.weights + found.linear
    assert found.loading < 1.05 * bfloat16
    assert found.plan.weights < 0.55 * bfloat16 + 2 * 151_936 * 3584  # the embeddings are in float32
    assert found.most - found.plan.weights - found.plan.slots == pytest.approx(found.plan.activations, rel=0.05)


def test_without_shared_key_heads_flash_attention_gets_them_repeated(on_a_card):
    found = on_a_card("qwen2", torch.bfloat16, False, _of_2_11)
    assert found.flops == 2 * found.linear * found.tokens + _attention(LAYERS, 3584, None) + _head(3584)
    plan = found.plan
    assert found.most <= plan.weights + plan.slots + 1.05 * plan.activations


@pytest.mark.parametrize("lacks", [(torch.float32,), (torch.bfloat16, False, _of_2_10)])
def test_without_flash_attention_no_layer_waits_for_the_host_either(on_a_card, lacks):
    found = on_a_card("qwen2", *lacks)
    assert found.tokens == models.distinct(_items())
    assert found.again == 0
