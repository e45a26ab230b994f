"""From labelled solutions to the tensors of optimiser batches."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from unprm.types import Encoded


@dataclass(frozen=True, slots=True)
class Example:
    """An encoded solution with one label per scored position."""

    encoded: Encoded
    labels: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`ids` (solutions, length), padded on the right; `rows`, `columns`, `labels` (tags,) name the scored ones."""

    ids: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    labels: torch.Tensor


def batches(count: int, size: int, epoch: int, seed: int) -> Iterator[list[int]]:
    """Indices of the optimiser batches of one epoch, shuffled by seed and epoch; the last may be smaller."""
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    for start in range(0, count, size):
        yield order[start : start + size]


def micro_batches(examples: Sequence[Example], tokens: int) -> Iterator[MicroBatch]:
    """Splits an optimiser batch by length into parts of at most `tokens` once padded; a longer example is a
    part of its own."""
    group: list[Example] = []
    for example in sorted(examples, key=lambda e: len(e.encoded.ids)):
        if group and (len(group) + 1) * len(example.encoded.ids) > tokens:
            yield _stack(group)
            group = []
        group.append(example)
    if group:
        yield _stack(group)


def _stack(group: Sequence[Example]) -> MicroBatch:
    # a causal model can't see padding on the right: any id will do for it
    ids = torch.zeros(len(group), len(group[-1].encoded.ids), dtype=torch.long)
    for row, example in enumerate(group):
        ids[row, : len(example.encoded.ids)] = torch.tensor(example.encoded.ids)
    rows = [row for row, example in enumerate(group) for _ in example.labels]
    columns = [position for example in group for position in example.encoded.positions]
    labels = [float(label) for example in group for label in example.labels]
    return MicroBatch(ids, torch.tensor(rows), torch.tensor(columns), torch.tensor(labels))
