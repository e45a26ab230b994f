"""What the tokens of a pass attend to: the tokens of their own sequence up to themselves, also from earlier passes.

Nothing is padded: on CUDA, in half precision, FlashAttention takes segments of unequal lengths (PyTorch 2.11 and
later); elsewhere each segment is computed by itself.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from unprm.engines.torch import varlen
from unprm.engines.torch.tree import Slots

TOGETHER = 65_536
"""Maximum keys that are gathered at once; a single segment may exceed it."""
HALF = (torch.float16, torch.bfloat16)


class Segment(NamedTuple):
    """The last `length` tokens of a sequence. `slots`: of all its tokens up to there."""

    slots: Slots
    length: int


class Packed(NamedTuple):
    """`keys`: slots of what the segments attend to, (seen,); `tokens`: the segments' own; the others as `varlen_attn`
    names them. `shapes`: own and seen tokens of each segment, without FlashAttention."""

    keys: torch.Tensor
    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    max_q: int
    max_k: int
    tokens: int
    shapes: Sequence[tuple[int, int]] | None = None


class Segments(NamedTuple):
    """The tokens of a pass. `slots`: of the tokens; `runs`: consecutive segments whose keys are gathered at once. All
    is on the device before the first layer runs, so that no layer waits for the host."""

    slots: torch.Tensor
    runs: Sequence[Packed]

    @classmethod
    def from_spans(
        cls, spans: Sequence[Segment], device: torch.device, dtype: torch.dtype, together: int = TOGETHER
    ) -> "Segments":
        """For attention in `dtype`; runs attend to at most `together` keys each, or are a single segment."""
        runs: list[list[Segment]] = []
        room = 0
        for span in spans:
            if len(span.slots) > room:
                runs.append([])
                room = together
            runs[-1].append(span)
            room -= len(span.slots)
        slots = sent(np.concatenate([span.slots[-span.length :] for span in spans]), device)
        return cls(slots, [_pack(run, device, has_flash(device, dtype)) for run in runs])


def sent(numbers: np.ndarray[Any, Any], to: torch.device | torch.Tensor) -> torch.Tensor:
    """Numbers on a device, or in a tensor there; copied from pinned memory, for which the host does not wait."""
    made = torch.from_numpy(numbers)
    device = to if isinstance(to, torch.device) else to.device
    if device.type == "cuda":
        made = made.pin_memory()
    return made.to(to, non_blocking=True) if isinstance(to, torch.device) else to.copy_(made, non_blocking=True)


def _pack(spans: Sequence[Segment], device: torch.device, flash: bool) -> Packed:
    shapes = [(span.length, len(span.slots)) for span in spans]
    lengths, seen = zip(*shapes, strict=True)
    ends = sent(np.cumsum([[0, *lengths], [0, *seen]], axis=1, dtype=np.int32), device)
    keys = sent(np.concatenate([span.slots for span in spans]), device)
    return Packed(keys, ends[0], ends[1], max(lengths), max(seen), sum(lengths), None if flash else shapes)


@cache
def has_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether FlashAttention for segments can be used: in half precision, on GPUs since Ampere."""
    if device.type != "cuda" or dtype not in HALF or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    return varlen.installed() is not None
