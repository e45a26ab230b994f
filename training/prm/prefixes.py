"""Solutions that begin alike as a forest: each distinct prefix of tokens is there once, and is computed once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import torch

from unprm.engines.waiting import common


class Forest(NamedTuple):
    """The distinct tokens of sequences, each before its descendants, (tokens,) each. `depths`: a token's index in its
    sequences. `ends`: the index after its last descendant. `paths`: for each sequence, its tokens' indices."""

    ids: list[int]
    depths: list[int]
    ends: list[int]
    paths: list[list[int]]


def grow(sequences: Sequence[Sequence[int]], sharing: bool = True) -> Forest:
    """The forest of sequences of token ids in ascending order; in another order, less is shared, and nothing without
    `sharing`."""
    forest = Forest([], [], [], [])
    path: list[int] = []
    for sequence, shared in zip(sequences, shared_lengths(sequences) if sharing else repeat(0), strict=False):
        for index in path[shared:]:
            forest.ends[index] = len(forest.ids)
        path = [*path[:shared], *range(len(forest.ids), len(forest.ids) + len(sequence) - shared)]
        forest.ids.extend(sequence[shared:])
        forest.depths.extend(range(shared, len(sequence)))
        forest.ends.extend([0] * (len(sequence) - shared))
        forest.paths.append(path)
    for index in path:
        forest.ends[index] = len(forest.ids)
    return forest


def shared_lengths(sequences: Iterable[Sequence[int]]) -> Iterator[int]:
    """How many tokens each sequence shares with the one before it."""
    previous: Sequence[int] = ()
    for sequence in sequences:
        yield common(previous, sequence)
        previous = sequence


def sees(ends: torch.Tensor) -> torch.Tensor:
    """Which tokens each token of a forest attends to, itself and those that it descends from: bool, (tokens, tokens).

    `ends`: as in `Forest`, (tokens,).
    """
    places = torch.arange(len(ends), device=ends.device)
    return (places <= places[:, None]) & (places[:, None] < ends)
