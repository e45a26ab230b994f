"""What a model takes of a device's memory, known before it is run."""

import ctypes
import sys
from collections.abc import Iterable, Sequence
from itertools import chain

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from unprm.engines.quantized import EightBitLinear, WidenedLinear
from unprm.types import MemoryPlan


def plan(modules: Sequence[nn.Module], networks: Sequence[PreTrainedModel], slots: int, tokens: int) -> MemoryPlan:
    """`modules`: all that has weights. `slots`: bytes for keys and values. `tokens` are run at once, by one of the
    networks after the other."""
    most = max(tokens * _bytes_per_token(network) for network in networks)
    return MemoryPlan(weight_bytes(modules), slots, most + max(map(_widened, networks)))


def weight_bytes(modules: Iterable[nn.Module]) -> int:
    """Of parameters and buffers, those that several modules share once."""
    tensors = chain.from_iterable(chain(module.parameters(), module.buffers()) for module in modules)
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())


def _bytes_per_token(network: PreTrainedModel) -> int:
    """What a pass holds at most for each token, within one layer.

    In the feed-forward block these are three tensors as wide as it is, the gate, the values and their product, and four
    as wide as the hidden states: the residual, what the norm made of it, and what adding them up takes.
    """
    wide, hidden = _feed_forward_width(network.config), int(network.config.hidden_size)
    size = int(network.dtype.itemsize)
    plain = size * (3 * wide + 4 * hidden)
    if any(isinstance(module, EightBitLinear) for module in network.modules()):
        # what is rounded is there as it was, in float32, and in eight bits
        return max(plain, (size + 4 + 1) * wide + 4 * size * hidden)
    return plain


def _widened(network: PreTrainedModel) -> int:
    """Bytes of the largest layer's weights in float32, if they become that when it runs."""
    layers = (
        m for m in network.modules() if isinstance(m, WidenedLinear) or (isinstance(m, EightBitLinear) and m.widened)
    )
    return max((4 * layer.weight.numel() for layer in layers), default=0)


def _feed_forward_width(config: PretrainedConfig) -> int:
    """Of a mixture of experts, as wide as those are together that a token goes to; four hidden states, as is usual, if
    it is not said."""
    experts = getattr(config, "num_experts_per_tok", None) or 1
    width = getattr(config, "moe_intermediate_size", None) or getattr(config, "intermediate_size", None)
    return int(width or 4 * config.hidden_size) * int(experts)


def release_freed() -> None:
    """Has glibc give back what was freed while a model was loaded: else it keeps the holes between tensors that are
    alive, 0.4 GB with 1.5 billion parameters in int8."""
    if sys.platform == "linux" and hasattr(glibc := ctypes.CDLL(None), "malloc_trim"):
        glibc.malloc_trim(0)
