"""What the tokens of a pass attend to: each to those of its own sequence up to itself, also from earlier passes.

The model runs all tokens as one row, so that nothing is padded outside of the attention. On CUDA, in half precision,
FlashAttention takes segments of unequal lengths as they are (PyTorch 2.11 and later); elsewhere segments of similar
shape are computed together, with a little padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from unprm.engines.torch import varlen
from unprm.engines.torch.tree import Slots

CLOSE = 1.25
"""Segments are padded together up to this ratio of their lengths, and of the lengths of what they attend to."""
TOGETHER = 65_536
"""Maximum keys that are gathered at once, padding included; a single segment may exceed it."""
HALF = (torch.float16, torch.bfloat16)


class Segment(NamedTuple):
    """Consecutive tokens of a sequence. `slots`: of the sequence's tokens from its first to the segment's last,
    (seen,); the last `length` of them are the segment's own."""

    slots: Slots
    length: int


class Packed(NamedTuple):
    """`keys`: slots of what each segment attends to, one segment after the other, (seen,), int64; `tokens`: number of
    the segments' own tokens; the rest as `varlen_attn` names it, the tensors (segments + 1,), int32."""

    keys: torch.Tensor
    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    max_q: int
    max_k: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PaddedGroup:
    """Segments that are computed together.

    `queries`: indices of their tokens in the pass, (segments, length); `keys`: slots of what they attend to, (segments,
    seen); `depths`: index of each token in its sequence, shaped as `queries`. `real`: indices of the tokens that are
    not padding in the flattened `queries`, (tokens,); the host would have to count a mask. `whole`: all segments begin
    where their sequences do.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    depths: torch.Tensor
    real: torch.Tensor
    whole: bool


class Padded(NamedTuple):
    """`order`: index of each token of the pass among the groups' real tokens."""

    groups: list[PaddedGroup]
    order: torch.Tensor


class Segments:
    """The tokens of a pass, one segment after the other, and what each attends to, for attention in `dtype`.

    `slots`: of the tokens, (tokens,). `layout`: packed for FlashAttention where it is used, padded elsewhere.
    `together`: maximum keys that are gathered at once. Everything is on the device before the first layer runs, so that
    no layer waits for the host.
    """

    def __init__(
        self, segments: Sequence[Segment], device: torch.device, dtype: torch.dtype, together: int = TOGETHER
    ) -> None:
        self._spans, self._together = segments, together
        self._device = device
        self.slots = self._tensor(np.concatenate([segment.slots[-segment.length :] for segment in segments]))
        self.layout: list[Packed] | Padded = self._in_runs() if has_flash(device, dtype) else self._in_groups()

    def _in_runs(self) -> list[Packed]:
        """Consecutive segments in runs that attend to at most `together` keys each, or of a single segment."""
        runs: list[list[Segment]] = []
        room = 0
        for segment in self._spans:
            if len(segment.slots) > room:
                runs.append([])
                room = self._together
            runs[-1].append(segment)
            room -= len(segment.slots)
        return [self._pack(run) for run in runs]

    def _pack(self, segments: Sequence[Segment]) -> Packed:
        lengths, seen = [segment.length for segment in segments], [len(segment.slots) for segment in segments]
        return Packed(
            self._tensor(np.concatenate([segment.slots for segment in segments])),
            self._tensor(np.cumsum([0, *lengths])).int(),
            self._tensor(np.cumsum([0, *seen])).int(),
            max(lengths),
            max(seen),
            sum(lengths),
        )

    def _in_groups(self) -> Padded:
        """The segments in groups of similar shape."""
        starts = np.cumsum([0, *(segment.length for segment in self._spans)])
        groups = [self._group(indices, starts) for indices in _alike(self._spans, self._together)]
        flat = torch.cat([group.queries.flatten()[group.real] for group in groups])
        return Padded(groups, flat.argsort())

    def _group(self, indices: Sequence[int], starts: np.ndarray[Any, Any]) -> PaddedGroup:
        segments = [self._spans[index] for index in indices]
        lengths = np.array([segment.length for segment in segments])
        seen = np.array([len(segment.slots) for segment in segments])
        steps = np.arange(lengths.max())
        places = np.arange(seen.max())
        # padding repeats the last entry: its keys are finite, and no real token attends to them
        queries = starts[list(indices)][:, None] + np.minimum(steps, lengths[:, None] - 1)
        keys = np.stack([segment.slots[np.minimum(places, len(segment.slots) - 1)] for segment in segments])
        depths = (seen - lengths)[:, None] + steps
        return PaddedGroup(
            self._tensor(queries),
            self._tensor(keys),
            self._tensor(depths),
            self._tensor(np.flatnonzero(steps < lengths[:, None])),
            bool((seen == lengths).all()),
        )

    def _tensor(self, numbers: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)


def _alike(segments: Sequence[Segment], together: int) -> list[list[int]]:
    """Indices of the segments, grouped by similar shape, with at most `together` keys in a group."""

    def shape(index: int) -> tuple[bool, int, int]:
        segment = segments[index]
        # powers of CLOSE: within a bucket, lengths differ at most by that ratio
        bucket = int(np.log(segment.length) / np.log(CLOSE))
        return len(segment.slots) == segment.length, bucket, len(segment.slots)

    groups: list[list[int]] = []
    for index in sorted(range(len(segments)), key=shape):
        if groups:
            first, last = segments[groups[-1][0]], shape(groups[-1][-1])
            current, seen = shape(index), len(segments[index].slots)
            close = current[:2] == last[:2] and seen <= CLOSE * len(first.slots)
            if close and (len(groups[-1]) + 1) * seen <= together:
                groups[-1].append(index)
                continue
        groups.append([index])
    return groups


@cache
def has_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether FlashAttention can be used: in half precision, on GPUs of the Ampere generation and later, by a PyTorch
    that has it for segments."""
    if device.type != "cuda" or dtype not in HALF or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    return varlen.installed() is not None
