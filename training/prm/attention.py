"""Attention of a pass without padding and without a mask of all pairs of tokens: over solutions one after another, or
over the forest of the prefixes that they share. Only kernels of CUDA compute it; elsewhere a pass takes transformers'
attention, with padding or a mask.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from unprm.engines.torch import varlen
from unprm.engines.torch.attention import unsupported

NAME = "unprm_training"
BLOCK = 128
"""Tokens of a block's side."""
WIDEST = 256
"""The largest head that FlashAttention computes."""
STRIDE = 8
"""What FlashAttention's gradients ask a head's width to be a multiple of."""
VARIANTS = 64
"""How often FlexAttention may be compiled: for passes with gradients and without, inputs that take some or none, one
block and several, and so on. Beyond PyTorch's limit of 8 it would make the scores of all pairs of tokens."""


class Kernels(NamedTuple):
    """`packed` has the signature of `torch.nn.attention.varlen.varlen_attn`, of which key heads may be fewer than query
    heads; `forest` that of `torch.nn.attention.flex_attention.flex_attention`. Both have gradients."""

    packed: Callable[..., torch.Tensor]
    forest: Callable[..., torch.Tensor]


class Packs(NamedTuple):
    """Sequences one after another: where each begins and the last ends, int32, (sequences + 1,), and the length of the
    longest."""

    starts: torch.Tensor
    longest: int

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "Packs":
        ends = torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return cls(ends.to(device), max(lengths))


@cache
def of_cuda() -> Kernels | None:
    """The kernels for bfloat16 on a GPU of the Ampere generation or later; None if PyTorch doesn't have them."""
    packed = varlen.installed()
    return Kernels(packed, _forest) if packed else None


def _forest(*arguments: Any, **options: Any) -> Any:
    return _compiled()(*arguments, **options)


@cache
def _compiled() -> Callable[..., Any]:
    return compiled("inductor")


def compiled(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """FlexAttention, compiled by this backend for every kind of inputs."""
    compute = torch.compile(flex_attention, backend=backend)

    def call(*arguments: Any, **options: Any) -> Any:
        # of this thread alone since PyTorch 2.13, and what checkpointing computes again is in another
        torch._dynamo.config.recompile_limit = VARIANTS
        return compute(*arguments, **options)

    return call


def computes(config: PreTrainedConfig) -> bool:
    """Whether `attention` computes what a model's own does, as far as its configuration shows."""
    if unsupported(config) is not None or config._attn_implementation not in ("sdpa", NAME):
        return False
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # caps, keys and values of different widths, and dropout of what is attended to
    others = ("attn_logit_softcapping", "v_head_dim", "attention_dropout", "attn_pdrop")
    return width <= WIDEST and width % STRIDE == 0 and not any(getattr(config, name, None) for name in others)


def use(model: PreTrainedModel) -> None:
    """Makes a model's forward pass use this attention, for which it must be given `layout` and `kernels`."""
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    layout: Packs | BlockMask,
    kernels: Kernels,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What each token gets of those that it sees: (1, tokens, heads, width).

    `query`: (1, heads, tokens, width); `key`, `value`: (1, key heads, tokens, width). `layout` says what is seen.
    `scaling`: of the products. `sliding_window`: tokens that each sees, itself included; None: all; the sequences of a
    forest must not be longer.
    Raises `NotImplementedError` for attention with `softcap`, sinks, `s_aux`, or `dropout`.
    """
    if softcap is not None or s_aux is not None or dropout:
        raise NotImplementedError("its attention has capped scores, sinks or dropout, which are not computed here")
    kind = query.device.type
    # rotary embeddings leave queries and keys in the type of the hidden states
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else value.dtype
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    if isinstance(layout, BlockMask):
        made = kernels.forest(query, key, value, block_mask=layout, scale=scaling, enable_gqa=True)
        return made.transpose(1, 2), None
    rows = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    spans = layout.starts, layout.starts, layout.longest, layout.longest
    window = -1 if sliding_window is None else sliding_window - 1
    return kernels.packed(*rows, *spans, scale=scaling, window_size=(window, 0))[None], None


def forest_blocks(ends: torch.Tensor) -> BlockMask:
    """What the tokens of a forest see, as `prefixes.sees` has it, by blocks of which those that nobody sees are left
    out. `ends`: as in `Forest`, (tokens,)."""
    tokens = len(ends)
    count = -(-tokens // BLOCK)
    padded = torch.nn.functional.pad(ends, (0, count * BLOCK - tokens)).view(count, BLOCK)
    places = torch.arange(count, device=ends.device)
    before = places < places[:, None]  # (blocks of queries, blocks of keys)
    whole = before & (padded.amin(1) >= (places[:, None] + 1) * BLOCK)
    some = (before & (padded.amax(1) > places[:, None] * BLOCK) & ~whole) | (places == places[:, None])

    def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (query < ends[key])

    return BlockMask.from_kv_blocks(
        *_listed(some), *_listed(whole), BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(tokens, tokens)
    )


def _listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of blocks of keys of each block of queries, and their indices first, as `BlockMask` takes them."""
    order = blocks.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    return blocks.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]
