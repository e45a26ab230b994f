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


class Segments(NamedTuple):
    """The tokens of a pass, one segment after the other, and what each attends to.

    `slots`: of the tokens, (tokens,). `layout`: packed for FlashAttention where it is used, padded elsewhere. All is on
    the device before the first layer runs, so that no layer waits for the host.
    """

    slots: torch.Tensor
    layout: list[Packed] | Padded

    @classmethod
    def of(
        cls, spans: Sequence[Segment], device: torch.device, dtype: torch.dtype, together: int = TOGETHER
    ) -> "Segments":
        """For attention in `dtype`. `together`: maximum keys that are gathered at once."""
        slots = sent(np.concatenate([span.slots[-span.length :] for span in spans]), device)
        if has_flash(device, dtype):
            return cls(slots, [_pack(run, device) for run in _runs(spans, together)])
        starts = np.cumsum([0, *(span.length for span in spans)])
        groups = [_group([spans[k] for k in each], starts[each], device) for each in _alike(spans, together)]
        flat = torch.cat([group.queries.flatten()[group.real] for group in groups])
        return cls(slots, Padded(groups, flat.argsort()))


def sent(numbers: np.ndarray[Any, Any], to: torch.device | torch.Tensor) -> torch.Tensor:
    """Numbers on a device, or in a tensor there, of their shape. A GPU copies them from memory that is not paged, for
    which the host does not wait."""
    made = torch.from_numpy(numbers)
    device = to if isinstance(to, torch.device) else to.device
    if device.type == "cuda":
        made = made.pin_memory()
    return made.to(to, non_blocking=True) if isinstance(to, torch.device) else to.copy_(made, non_blocking=True)


def _runs(spans: Sequence[Segment], together: int) -> list[list[Segment]]:
    """Consecutive segments in runs that attend to at most `together` keys each, or of a single segment."""
    runs: list[list[Segment]] = []
    room = 0
    for span in spans:
        if len(span.slots) > room:
            runs.append([])
            room = together
        runs[-1].append(span)
        room -= len(span.slots)
    return runs


def _pack(spans: Sequence[Segment], device: torch.device) -> Packed:
    lengths, seen = [span.length for span in spans], [len(span.slots) for span in spans]
    ends = sent(np.cumsum([[0, *lengths], [0, *seen]], axis=1, dtype=np.int32), device)
    keys = sent(np.concatenate([span.slots for span in spans]), device)
    return Packed(keys, ends[0], ends[1], max(lengths), max(seen), sum(lengths))


def _group(spans: Sequence[Segment], starts: np.ndarray[Any, Any], device: torch.device) -> PaddedGroup:
    """`starts`: where each segment begins in the pass."""
    lengths = np.array([span.length for span in spans])
    seen = np.array([len(span.slots) for span in spans])
    steps = np.arange(lengths.max())
    places = np.arange(seen.max())
    # padding repeats the last entry: its keys are finite, and no real token attends to them
    queries = starts[:, None] + np.minimum(steps, lengths[:, None] - 1)
    keys = np.stack([span.slots[np.minimum(places, len(span.slots) - 1)] for span in spans])
    depths = (seen - lengths)[:, None] + steps
    real = np.flatnonzero(steps < lengths[:, None])
    return PaddedGroup(
        sent(queries, device),
        sent(keys, device),
        sent(depths, device),
        sent(real, device),
        bool((seen == lengths).all()),
    )


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
