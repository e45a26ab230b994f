"""A vote and a beam search with the shape of Qwen2.5-Math-7B, in bf16, on cards that aren't there: the operations are
counted on a fake one, and their time follows from the cards' data sheets. Derived, not measured: no card is as fast.

Every operation takes as long as its multiplications or its bytes do, whichever is longer; starting it takes no time.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context

import torch
from transformers import Qwen2Config, Qwen2Model

from benchmarks import models
from benchmarks.fake_card import Count, FakeCard, FakeEngine, fake_card
from benchmarks.size import SEVEN_BILLION
from benchmarks.timing import Comparison
from unprm.model_options import EngineOptions
from unprm.types import Encoded

CACHE = 2**30


@dataclass(frozen=True, slots=True)
class Card:
    """By its data sheet: operations a second in bf16, without sparsity, and bytes a second of its memory."""

    name: str
    flops: float
    bandwidth: float

    def seconds(self, work: Count) -> float:
        """What it needs at least for all operations, one after the other."""
        return sum(max(each.flops / self.flops, each.moved / self.bandwidth) for each in work.operations)


CARDS = (
    Card("A100 80 GB", 312e12, 2.039e12),
    Card("H100", 989e12, 3.35e12),
    Card("H200", 989e12, 4.8e12),
    Card("H20", 148e12, 4.0e12),
)


def run() -> list[Comparison]:
    """With shared prefixes, and with every sequence whole, packed without padding."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        counted = pool.submit(counts).result()
    rows = []
    for work, (shared, whole) in counted.items():
        for card in CARDS:
            what = f"{card.name}, {work}: {shared.tokens:,} tokens, {shared.flops / 1e12:,.0f} TFLOP"
            baseline = f"whole sequences: {whole.tokens:,} tokens, {whole.flops / 1e12:,.0f} TFLOP"
            rows.append(Comparison(what, card.seconds(shared), baseline, card.seconds(whole), 1))
    return rows


def counts() -> dict[str, tuple[Count, Count]]:
    """For each kind of work: with shared prefixes, and without. For a process of its own."""
    rng = random.Random(0)
    with fake_card() as card:
        network = Qwen2Model._from_config(Qwen2Config(**SEVEN_BILLION), dtype=torch.bfloat16).eval()
        engine = FakeEngine(card, network, EngineOptions().batch_tokens, CACHE)
        work = {"64 candidates": [models.vote(rng)], "beam search, 8 × 8 × 10": models.beam_search(rng)}
        return {
            name: (_counted(card, engine, batches), _counted(card, engine, _apart(batches)))
            for name, batches in work.items()
        }


def _counted(card: FakeCard, engine: FakeEngine, batches: Sequence[Sequence[Encoded]]) -> Count:
    engine.forget()
    card.reset()
    for items in batches:
        engine.score(items)
    return card.count


def _apart(batches: Sequence[Sequence[Encoded]]) -> list[list[Encoded]]:
    """The same with nothing in common: each sequence begins with another token."""
    first = count()
    return [[Encoded((next(first), *item.ids[1:]), item.positions) for item in items] for items in batches]
