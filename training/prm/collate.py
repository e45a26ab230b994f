"""Turns labelled solutions into the tensors of optimiser batches."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import Self

import torch
from torch.nn.utils.rnn import pad_sequence

from unprm.errors import ModelInvalid
from unprm.types import Encoded, Format

from ..layouts.files import read_labelled
from ..schema import LabelledSolution
from ..stage_settings import LayoutName

MOST_HELD_OUT = 500
"""Solutions held out of the data by default: more would tell little more."""


@dataclass(frozen=True, slots=True)
class Example:
    """An encoded solution with a label in [0, 1] (1: right) for each scored position. `problem`: its text."""

    encoded: Encoded
    labels: tuple[float, ...]
    problem: str = ""

    @classmethod
    def of(cls, solution: LabelledSolution, encoded: Encoded) -> Self:
        """The example of a solution that is scored at the steps with known labels only."""
        positions = tuple(encoded.positions[step] for step in solution.known)
        return cls(replace(encoded, positions=positions), tuple(solution.known.values()), solution.problem)

    @classmethod
    def whole(cls, solution: LabelledSolution, encoded: Encoded) -> Self:
        """The example of a solution that is scored at all steps up to the last with a known label; nan: unknown."""
        labels = [solution.known.get(step, math.nan) for step in range(max(solution.known) + 1)]
        positions = encoded.positions[: len(labels)]
        return cls(
            replace(encoded, ids=encoded.ids[: positions[-1] + 1], positions=positions), tuple(labels), solution.problem
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Inputs of one forward pass, and what is learned from it.

    - `ids`: padded, (texts, length), a solution per row, padding on the right; or packed, (1, tokens), one solution
      after the other.
    - `positions`: each token's index in its solution, in the shape of `ids`; None if padded.
    - `lengths`: tokens of each solution.
    - `solutions`, `places`, `labels`: (tags,), for the tag of each labelled step the number of its solution, its index
      in the flattened `ids`, and its label in [0, 1] (1: right).
    """

    ids: torch.Tensor
    positions: torch.Tensor | None
    lengths: tuple[int, ...]
    solutions: torch.Tensor
    places: torch.Tensor
    labels: torch.Tensor


def read_examples(
    paths: Sequence[Path],
    layout: LayoutName | None,
    format: Format,
    window: int,
    make: Callable[[LabelledSolution, Encoded], Example] = Example.of,
) -> tuple[list[Example], int]:
    """The labelled solutions of these files, made into examples by `make`, and the number of those left out because
    they have more than `window` tokens. Raises `ModelInvalid` if none is left of several."""
    solutions = list(read_labelled(paths, layout))
    examples = [make(s, format.encode(s.problem, s.steps)) for s in solutions]
    examples = [example for example in examples if len(example.encoded.ids) <= window]
    if paths and not examples:
        names = ", ".join(map(str, paths))
        raise ModelInvalid(f"nothing to train on: {len(solutions)} solutions in {names}, none fits {window} tokens")
    return examples, len(solutions) - len(examples)


def hold_out(examples: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """The examples to train on, and those held out: of whole problems, drawn by seed, in all at most this share, and
    `MOST_HELD_OUT`."""
    sizes = Counter(example.problem for example in examples)
    problems, room = list(sizes), min(MOST_HELD_OUT, int(share * len(examples)))
    random.Random(f"{seed}/held out").shuffle(problems)
    held_out = set[str]()
    for problem in problems:
        if sizes[problem] <= room:
            held_out.add(problem)
            room -= sizes[problem]
    parts = ([each for each in examples if (each.problem in held_out) is wanted] for wanted in (False, True))
    return next(parts), next(parts)


def batches(solutions: int, size: int, epoch: int, seed: int) -> Iterator[list[int]]:
    """Indices of the optimiser batches of one epoch over so many solutions, shuffled by seed and epoch; the last may be
    smaller."""
    order = list(range(solutions))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    for start in range(0, solutions, size):
        yield order[start : start + size]


def micro_batches(examples: Sequence[Example], tokens: int, packing: bool = False) -> Iterator[MicroBatch]:
    """Splits an optimiser batch, by rising length, into parts of at most `tokens` tokens, padding included; a longer
    example is a part of its own. With `packing` there is no padding; the attention must keep the solutions apart."""
    group: list[Example] = []
    size = 0
    for example in sorted(examples, key=lambda example: len(example.encoded.ids)):
        length = len(example.encoded.ids)
        size = size + length if packing else (len(group) + 1) * length
        if group and size > tokens:
            yield _micro_batch(group, packing)
            group, size = [], length
        group.append(example)
    if group:
        yield _micro_batch(group, packing)


def _micro_batch(group: Sequence[Example], packing: bool) -> MicroBatch:
    texts = [torch.tensor(example.encoded.ids) for example in group]
    lengths = tuple(map(len, texts))
    # a causal model cannot see padding on the right, so any id will do
    ids = torch.cat(texts)[None] if packing else pad_sequence(texts, batch_first=True)
    positions = torch.cat([torch.arange(length) for length in lengths])[None] if packing else None
    starts = accumulate(lengths, initial=0) if packing else count(0, ids.shape[1])
    tags = [
        (number, start + position, float(label))
        for number, (start, example) in enumerate(zip(starts, group, strict=False))
        for position, label in zip(example.encoded.positions, example.labels, strict=True)
    ]
    solutions, places, labels = map(torch.tensor, zip(*tags, strict=True))
    return MicroBatch(ids, positions, lengths, solutions, places, labels)
