"""What the tokens of a pass attend to: each to those of its own sequence up to itself, also from earlier passes.

The model runs all tokens as one row, so that nothing is padded outside of the attention. On CUDA, in half precision,
FlashAttention takes spans of unequal lengths as they are; elsewhere spans of similar shape are computed together, with
a little padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from unprm.engines.torch.tree import Slots

CLOSE = 1.25
"""Spans are padded together up to this ratio of their lengths, and of the lengths of what they attend to."""
TOGETHER = 65_536
"""Most keys that are gathered at once, padding included; a single span may exceed it."""
HALF = (torch.float16, torch.bfloat16)


class Span(NamedTuple):
    """Consecutive tokens of a sequence. `slots`: of the sequence's tokens from its first to the span's last; the last
    `length` of them are the span's own."""

    slots: Slots
    length: int


class Packed(NamedTuple):
    """`keys`: slots of what each span attends to, one span after the other; `tokens`: number of the spans' own tokens;
    the rest as `varlen_attn` names it."""

    keys: torch.Tensor
    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    max_q: int
    max_k: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Group:
    """Spans that are computed together.

    `queries`: indices of their tokens in the pass, (spans, length); `keys`: slots of what they attend to, (spans,
    seen); `depths`: index of each token in its sequence, shaped as `queries`. `real`: indices of the tokens that are
    not padding in the flattened `queries`, (tokens,); the host would have to count a mask. `whole`: all spans begin
    where their sequences do.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    depths: torch.Tensor
    real: torch.Tensor
    whole: bool


class Padded(NamedTuple):
    """`order`: index of each token of the pass among the groups' real tokens."""

    groups: list[Group]
    order: torch.Tensor


class Spans:
    """The tokens of a pass, one span after the other, and what each attends to, for attention in `dtype`.

    `slots`: of the tokens, (tokens,). `layout`: packed for FlashAttention where it is used, padded elsewhere.
    Everything is on the device before the first layer runs, so that no layer waits for the host.
    """

    def __init__(self, spans: Sequence[Span], device: torch.device, dtype: torch.dtype) -> None:
        self._spans = spans
        self._device = device
        self.slots = self._tensor(np.concatenate([span.slots[-span.length :] for span in spans]))
        self.layout: list[Packed] | Padded = self._in_runs() if has_flash(device, dtype) else self._in_groups()

    def _in_runs(self) -> list[Packed]:
        """Consecutive spans in runs that attend to at most `TOGETHER` keys each, or of a single span."""
        runs: list[list[Span]] = []
        room = 0
        for span in self._spans:
            if len(span.slots) > room:
                runs.append([])
                room = TOGETHER
            runs[-1].append(span)
            room -= len(span.slots)
        return [self._pack(run) for run in runs]

    def _pack(self, spans: Sequence[Span]) -> Packed:
        lengths, seen = [span.length for span in spans], [len(span.slots) for span in spans]
        return Packed(
            self._tensor(np.concatenate([span.slots for span in spans])),
            self._tensor(np.cumsum([0, *lengths])).int(),
            self._tensor(np.cumsum([0, *seen])).int(),
            max(lengths),
            max(seen),
            sum(lengths),
        )

    def _in_groups(self) -> Padded:
        """The spans in groups of similar shape."""
        starts = np.cumsum([0, *(span.length for span in self._spans)])
        groups = [self._group(indices, starts) for indices in _alike(self._spans)]
        flat = torch.cat([group.queries.flatten()[group.real] for group in groups])
        return Padded(groups, flat.argsort())

    def _group(self, indices: Sequence[int], starts: np.ndarray[Any, Any]) -> Group:
        spans = [self._spans[index] for index in indices]
        lengths = np.array([span.length for span in spans])
        seen = np.array([len(span.slots) for span in spans])
        steps = np.arange(lengths.max())
        places = np.arange(seen.max())
        # padding repeats the last entry: its keys are finite, and no real token attends to them
        queries = starts[list(indices)][:, None] + np.minimum(steps, lengths[:, None] - 1)
        keys = np.stack([span.slots[np.minimum(places, len(span.slots) - 1)] for span in spans])
        depths = (seen - lengths)[:, None] + steps
        return Group(
            self._tensor(queries),
            self._tensor(keys),
            self._tensor(depths),
            self._tensor(np.flatnonzero(steps < lengths[:, None])),
            bool((seen == lengths).all()),
        )

    def _tensor(self, numbers: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)


def _alike(spans: Sequence[Span]) -> list[list[int]]:
    """Indices of the spans, grouped by similar shape."""

    def shape(index: int) -> tuple[bool, int, int]:
        span = spans[index]
        # powers of CLOSE: within a bucket, lengths differ at most by that ratio
        bucket = int(np.log(span.length) / np.log(CLOSE))
        return len(span.slots) == span.length, bucket, len(span.slots)

    groups: list[list[int]] = []
    for index in sorted(range(len(spans)), key=shape):
        if groups:
            first, last = spans[groups[-1][0]], shape(groups[-1][-1])
            current, seen = shape(index), len(spans[index].slots)
            close = current[:2] == last[:2] and seen <= CLOSE * len(first.slots)
            if close and (len(groups[-1]) + 1) * seen <= TOGETHER:
                groups[-1].append(index)
                continue
        groups.append([index])
    return groups


@cache
def has_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether FlashAttention can be used: in half precision, on GPUs of the Ampere generation and later."""
    return device.type == "cuda" and dtype in HALF and torch.cuda.get_device_capability(device) >= (8, 0)
