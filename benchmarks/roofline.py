"""Estimated times of a vote and a beam search with the shape of Qwen2.5-Math-7B, in bf16, on GPUs: operations are
counted on a simulated card, and their times derived from the GPUs' data sheets, not measured: no real card is as fast.

Every operation takes the time of its arithmetic or of its memory traffic, whichever is longer; launches take no time.
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
from benchmarks.models import SEVEN_BILLION
from benchmarks.timing import Comparison
from unprm.models.options import EngineOptions
from unprm.types import Encoded

CACHE = 2**30


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by its data sheet: operations per second in bf16, without sparsity, and memory bytes per second."""

    name: str
    flops: float
    bandwidth: float

    def seconds(self, work: Count) -> float:
        """Minimum time for all operations, one after the other."""
        return sum(max(each.flops / self.flops, each.moved / self.bandwidth) for each in work.operations)


CARDS = (
    Card("A100 80 GB", 312e12, 2.039e12),
    Card("H100", 989e12, 3.35e12),
    Card("H200", 989e12, 4.8e12),
    Card("H20", 148e12, 4.0e12),
)


def run() -> list[Comparison]:
    """Compares shared prefixes with whole sequences, packed without padding."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        counted = pool.submit(counts).result()
    rows = []
    for work, (shared, whole) in counted.items():
        for card in CARDS:
            what = f"{card.name}, {work}: {shared.tokens:,} tokens, {shared.flops / 1e12:,.0f} TFLOP"
            baseline = f"whole sequences: {whole.tokens:,} tokens, {whole.flops / 1e12:,.0f} TFLOP"
            rows.append(Comparison(what, card.seconds(shared), baseline, card.seconds(whole)))
    return rows


def counts() -> dict[str, tuple[Count, Count]]:
    """For each kind of work, the counts with shared prefixes and without. Run this in a separate process."""
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
    """The same batches without common prefixes: each sequence begins with a different token."""
    first = count()
    return [[Encoded((next(first), *item.ids[1:]), item.positions) for item in items] for items in batches]
