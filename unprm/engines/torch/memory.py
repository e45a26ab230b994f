"""The memory that a model takes on its device, computed before it is run."""

import ctypes
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from unprm.engines.torch.quantized import Int8Linear, WidenedLinear
from unprm.types import MemoryPlan

SPARE = 2**30
"""Bytes of a GPU that are always left free: libraries load their code when it is first needed."""
PASS_SHARE = 0.125
"""Maximum share of a GPU that a pass takes for keys, values and activations."""
CACHED = 2**20
"""Maximum tokens of a prefix cache whose size is not given: their ids and scores take memory of the host as well."""


class RunLimit:
    """Tokens run at once: `most`, or after memory ran out half of what was too much, for `recovery` runs."""

    def __init__(self, most: int, recovery: int) -> None:
        self.most = self.now = most
        self.recovery, self._runs = recovery, 0

    def halve(self, tried: int) -> None:
        self.now, self._runs = tried // 2, 0

    def note_run(self) -> None:
        self._runs += 1
        if self.now < self.most and self._runs >= self.recovery:
            self.now, self._runs = min(2 * self.now, self.most), 0


def plan(
    modules: Sequence[nn.Module], networks: Sequence[PreTrainedModel], slots: int, tokens: int, read: int = 0
) -> MemoryPlan:
    """The memory of `modules`. `slots`: bytes; `tokens`: run at once; `read`: layers whose hidden states are kept."""
    activations = max(tokens * _bytes_per_token(network, read) for network in networks)
    return MemoryPlan(weight_bytes(modules), slots, activations + max(map(_widened, networks)))


def cache_bytes(model: MemoryPlan, slot: int, share: float, free: int, total: int) -> int:
    """Bytes of the prefix cache: what a plan leaves of a `share` of `total`, and is `free`. `slot`: a token's bytes."""
    left = min(int(share * total) - model.weights, free - SPARE) - model.slots - model.activations
    return min(max(0, left), CACHED * slot)


def pass_tokens(asked: int, model: MemoryPlan, total: int) -> int:
    """Tokens that a GPU of `total` bytes runs at once: at most as `asked`, for which the model's plan is made."""
    return min(asked, int(asked * PASS_SHARE * total / (model.slots + model.activations)))


def weight_bytes(modules: Iterable[nn.Module]) -> int:
    """Bytes of parameters and buffers, each counted once, a shared base for a part in each of its models."""
    tensors = chain.from_iterable(chain(module.parameters(), module.buffers()) for module in modules)
    return sum({id(tensor): tensor.nbytes // getattr(tensor, "sharers", 1) for tensor in tensors}.values())


def _bytes_per_token(network: PreTrainedModel, read: int) -> int:
    """Maximum bytes of a token within one layer, and of the `read` layers before.

    In the feed-forward block: three tensors of its width (gate, values, product) and four of the hidden width
    (residual, the norm's output, two to add them).
    """
    wide, hidden = feed_forward_width(network.config), int(network.config.hidden_size)
    return int(network.dtype.itemsize) * (3 * wide + (4 + read) * hidden)


def _widened(network: PreTrainedModel) -> int:
    """Bytes of the largest layer's weights in float32, if they are converted to it when the layer runs."""
    layers = (m for m in network.modules() if isinstance(m, WidenedLinear) or (isinstance(m, Int8Linear) and m.widened))
    return max((4 * layer.weight.numel() for layer in layers), default=0)


def feed_forward_width(config: PretrainedConfig) -> int:
    """Width of the feed-forward block, or of a token's experts together; by default four hidden widths."""
    experts = getattr(config, "num_experts_per_tok", None) or 1
    width = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    return int(width or 4 * config.hidden_size) * int(experts)


def left_to_container(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes left by a container's memory limit (control groups, version 2); `sys.maxsize` without a limit."""
    try:
        limit, used = (int((cgroup / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (cgroup / "memory.stat").read_text("ascii").splitlines())
        return limit - used + int(counts["inactive_file"])  # cached files count as used, but can be evicted
    except (OSError, ValueError):  # no such file, or "max"
        return sys.maxsize


def release_freed() -> None:
    """Makes glibc return freed memory: with 1.5 billion parameters in int8, it would keep 0.4 GB."""
    if sys.platform == "linux" and hasattr(glibc := ctypes.CDLL(None), "malloc_trim"):
        glibc.malloc_trim(0)
