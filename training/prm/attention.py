"""Attention of a pass without padding, over solutions one after another. Only a kernel of CUDA computes it; elsewhere a
pass takes transformers' attention, with padding.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from unprm.engines.torch import varlen
from unprm.engines.torch.attention import unsupported

NAME = "unprm_training"
WIDEST = 256
"""The largest head that FlashAttention computes."""
STRIDE = 8
"""What FlashAttention's gradients ask a head's width to be a multiple of."""


class Packs(NamedTuple):
    """Sequences one after another: where each begins and the last ends, int32, (sequences + 1,), and the length of the
    longest."""

    starts: torch.Tensor
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Packs":
        ends = torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return cls(ends.to(device), max(lengths))


def computes(config: PreTrainedConfig) -> bool:
    """Whether `attention` computes what a model's own does, as far as its configuration shows."""
    if unsupported(config) is not None or config._attn_implementation not in ("sdpa", NAME):
        return False
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # caps, keys and values of different widths, and dropout of what is attended to
    others = ("attn_logit_softcapping", "v_head_dim", "attention_dropout", "attn_pdrop")
    return width <= WIDEST and width % STRIDE == 0 and not any(getattr(config, name, None) for name in others)


def use(model: PreTrainedModel) -> None:
    """Makes a model's forward pass use this attention, for which it must be given `layout` and `kernel`."""
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    layout: Packs,
    kernel: varlen.Varlen,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What each token gets of those that it sees: (1, tokens, heads, width).

    `query`: (1, heads, tokens, width); `key`, `value`: (1, key heads, tokens, width). `layout`: where solutions are.
    `scaling`: of the products. `sliding_window`: tokens that each sees, itself included; None: all.
    Raises `NotImplementedError` for attention with `softcap`, sinks, `s_aux`, or `dropout`.
    """
    if softcap is not None or s_aux is not None or dropout:
        raise NotImplementedError("its attention has capped scores, sinks or dropout, which are not computed here")
    kind = query.device.type
    # rotary embeddings leave queries and keys in the type of the hidden states
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    rows = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    spans = layout.starts, layout.starts, layout.longest, layout.longest
    window = -1 if sliding_window is None else sliding_window - 1
    return kernel(*rows, *spans, scale=scaling, window_size=(window, 0))[None], None
