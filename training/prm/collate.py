"""Turns labelled solutions into the tensors of optimiser batches."""

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch.nn.utils.rnn import pad_sequence

from unprm.errors import ModelInvalid
from unprm.types import Encoded, Format

from ..layouts.files import read_labelled
from ..schema import LabelledSolution
from ..stage_settings import LayoutName
from .prefixes import grow, shared_lengths


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

    - `ids`: padded, (texts, length), a solution per row, padding on the right; packed, (1, tokens), all solutions one
      after the other; or shared, (1, tokens), a forest of their prefixes.
    - `positions`: each token's index in its solution, in the shape of `ids`; None if padded.
    - `ends`: (tokens,), as in `Forest`; None unless shared.
    - `lengths`: tokens of each solution, shared ones included.
    - `solutions`, `places`, `labels`: (tags,), for the tag of each labelled step the number of its solution, its index
      in the flattened `ids`, and its label in [0, 1] (1: right).
    - `responses`: (tokens, 3), for each token of a response that a margin depends on: its index in the flattened `ids`,
      that of the token before it, and the number of the first tag that depends on it; (0, 3) where a margin is read at
      the tag alone.
    """

    ids: torch.Tensor
    positions: torch.Tensor | None
    lengths: tuple[int, ...]
    solutions: torch.Tensor
    places: torch.Tensor
    labels: torch.Tensor
    responses: torch.Tensor
    ends: torch.Tensor | None = None


def read_examples(
    paths: Sequence[Path],
    layout: LayoutName | None,
    format: Format,
    window: int,
    make: Callable[[LabelledSolution, Encoded], Example] = Example.of,
) -> tuple[list[Example], int]:
    """The labelled solutions of these files, made into examples by `make`, and the number of those left out because
    they have more than `window` tokens. Raises `ModelInvalid` if none is left."""
    solutions = list(read_labelled(paths, layout))
    examples = [make(s, format.encode(s.problem, s.steps)) for s in solutions]
    examples = [example for example in examples if len(example.encoded.ids) <= window]
    if not examples:
        names = ", ".join(map(str, paths))
        raise ModelInvalid(f"nothing to train on: {len(solutions)} solutions in {names}, none fits {window} tokens")
    return examples, len(solutions) - len(examples)


def batches(problems: Sequence[str], size: int, epoch: int, seed: int, together: bool = False) -> Iterator[list[int]]:
    """Indices of the optimiser batches of one epoch, shuffled by seed and epoch; the last may be smaller.

    `problems`: that of each solution. With `together` problems are shuffled, and solutions within their problem.
    """
    order = list(range(len(problems)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    if together:
        ranks = {problem: rank for rank, problem in enumerate(dict.fromkeys(problems[index] for index in order))}
        order.sort(key=lambda index: ranks[problems[index]])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def micro_batches(
    examples: Sequence[Example], tokens: int, packing: bool = False, sharing: bool = False
) -> Iterator[MicroBatch]:
    """Splits an optimiser batch into parts of at most `tokens` tokens, padding included; a longer example is a part of
    its own. With `packing` there is no padding; the attention must keep the solutions apart. With `sharing` a prefix of
    several solutions counts and is computed once in a part."""
    make = partial(_pack, sharing=sharing) if sharing or packing else _pad
    group: list[Example] = []
    size = 0
    for example in in_order(examples, sharing):
        length = len(example.encoded.ids)
        if sharing:
            (*_, shared) = shared_lengths([member.encoded.ids for member in (*group[-1:], example)])
            grown = size + length - shared
        else:
            grown = size + length if packing else (len(group) + 1) * length
        if group and grown > tokens:
            yield make(group)
            group, grown = [], length
        group.append(example)
        size = grown
    if group:
        yield make(group)


def in_order(examples: Sequence[Example], sharing: bool) -> list[Example]:
    """The order in which `micro_batches` takes examples: of their ids, or of their lengths."""
    return sorted(examples, key=lambda example: example.encoded.ids if sharing else (len(example.encoded.ids),))


def _pad(group: Sequence[Example]) -> MicroBatch:
    # a causal model cannot see padding on the right, so any id will do
    ids = pad_sequence([torch.tensor(example.encoded.ids) for example in group], batch_first=True)
    starts = range(0, ids.numel(), ids.shape[1])
    paths = [range(start, start + len(example.encoded.ids)) for start, example in zip(starts, group, strict=True)]
    return MicroBatch(ids, None, _lengths(group), *_placed(group, paths))


def _pack(group: Sequence[Example], sharing: bool = False) -> MicroBatch:
    forest = grow([example.encoded.ids for example in group], sharing)
    ids, positions, ends = (torch.tensor(values) for values in (forest.ids, forest.depths, forest.ends))
    placed = _placed(group, forest.paths)
    return MicroBatch(ids[None], positions[None], _lengths(group), *placed, ends if sharing else None)


def _lengths(group: Sequence[Example]) -> tuple[int, ...]:
    return tuple(len(example.encoded.ids) for example in group)


def _placed(
    group: Sequence[Example], paths: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The fields of a `MicroBatch` from `solutions` to `responses`; `paths`: where each solution's tokens are."""
    solutions = [number for number, example in enumerate(group) for _ in example.labels]
    places: list[int] = []
    responses: list[tuple[int, int, int]] = []
    for example, path in zip(group, paths, strict=True):
        start = example.encoded.response or sys.maxsize
        for position in example.encoded.positions:
            responses += ((path[at], path[at - 1], len(places)) for at in range(start, position + 1))
            places.append(path[position])
            start = max(start, position + 1)
    labels = [float(label) for example in group for label in example.labels]
    of_responses = torch.tensor(responses, dtype=torch.long).view(-1, 3)
    return torch.tensor(solutions), torch.tensor(places), torch.tensor(labels), of_responses
