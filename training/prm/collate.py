"""Turns labelled solutions into the tensors of optimiser batches."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self

import torch
from torch.nn.utils.rnn import pad_sequence

from training.schema import LabelledSolution
from unprm.types import Encoded


@dataclass(frozen=True, slots=True)
class Example:
    """An encoded solution with one label in [0, 1] (1: right) per scored position."""

    encoded: Encoded
    labels: tuple[float, ...]

    @classmethod
    def of(cls, solution: LabelledSolution, encoded: Encoded) -> Self:
        """The example of a solution that is scored at the steps with known labels only."""
        positions = tuple(encoded.positions[step] for step in solution.known)
        return cls(replace(encoded, positions=positions), tuple(solution.known.values()))


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Inputs of one forward pass. `ids`: (texts, length), one solution per row, padded on the right; or, if packed,
    (1, tokens), all solutions concatenated, with `positions` of the same shape that restart at 0 for each solution.
    `solutions`, `places`, `labels`, (tags,): for each tag of a labelled step the index of its solution in the batch,
    its index in the flattened `ids`, and its label in [0, 1] (1: right)."""

    ids: torch.Tensor
    positions: torch.Tensor | None
    solutions: torch.Tensor
    places: torch.Tensor
    labels: torch.Tensor


def batches(count: int, size: int, epoch: int, seed: int) -> Iterator[list[int]]:
    """Indices of the optimiser batches of one epoch, shuffled by seed and epoch; the last may be smaller."""
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    for start in range(0, count, size):
        yield order[start : start + size]


def micro_batches(examples: Sequence[Example], tokens: int, packing: bool = False) -> Iterator[MicroBatch]:
    """Splits an optimiser batch, sorted by length, into parts of at most `tokens` tokens, padding included; a longer
    example is a part of its own. With `packing` there is no padding; the attention must keep the solutions apart."""
    group: list[Example] = []
    for example in sorted(examples, key=lambda e: len(e.encoded.ids)):
        length = len(example.encoded.ids)
        size = sum(len(member.encoded.ids) for member in group) + length if packing else (len(group) + 1) * length
        if group and size > tokens:
            yield _pack(group) if packing else _pad(group)
            group = []
        group.append(example)
    if group:
        yield _pack(group) if packing else _pad(group)


def _pad(group: Sequence[Example]) -> MicroBatch:
    # a causal model cannot see padding on the right, so any id will do
    ids = pad_sequence([torch.tensor(example.encoded.ids) for example in group], batch_first=True)
    return _placed(group, ids, None, range(0, ids.numel(), ids.shape[1]))


def _pack(group: Sequence[Example]) -> MicroBatch:
    lengths = [len(example.encoded.ids) for example in group]
    ids = torch.tensor([[token for example in group for token in example.encoded.ids]])
    positions = torch.tensor([[place for length in lengths for place in range(length)]])
    return _placed(group, ids, positions, [0, *accumulate(lengths[:-1])])


def _placed(
    group: Sequence[Example], ids: torch.Tensor, positions: torch.Tensor | None, starts: Sequence[int]
) -> MicroBatch:
    solutions = [number for number, example in enumerate(group) for _ in example.labels]
    places = [
        start + position for start, example in zip(starts, group, strict=True) for position in example.encoded.positions
    ]
    labels = [float(label) for example in group for label in example.labels]
    return MicroBatch(ids, positions, torch.tensor(solutions), torch.tensor(places), torch.tensor(labels))
