"""Attention over a tree: to keys and values of the pass's tokens, and of the same prefixes in earlier passes."""

import threading
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from unprm.engines.torch import varlen
from unprm.engines.torch.segments import Packed, Segments

NAME = "unprm_tree"
LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that can be computed over a tree; others mix tokens in their own order."""
BY_LENGTH = {"dynamic", "longrope"}
"""Types of rotary embeddings that depend on the length of the longest sequence of a pass."""


class KeyValues:
    """Keys and values by slot, for every layer: (slots, key heads, width), in the network's type on its device."""

    def __init__(self, network: PreTrainedModel, slots: int) -> None:
        shape = (slots, *_shape(network.config))
        layers = range(network.config.num_hidden_layers)
        make = {"dtype": network.dtype, "device": network.device}
        # uninitialised: on a CPU what is never used takes no memory
        self.layers = [(torch.empty(shape, **make), torch.empty(shape, **make)) for _ in layers]

    @staticmethod
    def bytes_per_token(network: PreTrainedModel) -> int:
        heads, width = _shape(network.config)
        layers = int(network.config.num_hidden_layers)
        return 2 * layers * heads * width * int(network.dtype.itemsize)


def _shape(config: PretrainedConfig) -> tuple[int, int]:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(heads), int(width)


def unsupported(config: PretrainedConfig) -> str | None:
    """Why a model can't be computed over a tree, as far as its configuration shows; None if nothing speaks against."""
    layers = set(getattr(config, "layer_types", None) or ()) - LAYERS
    if layers:
        return f"it has {' and '.join(sorted(layers))} layers"
    if not getattr(config, "num_attention_heads", None):
        return f"models of the type {config.model_type} have no attention"
    if getattr(config, "alibi", False):
        return "it uses ALiBi"
    if names := _rope_types(config) & BY_LENGTH:
        return f"its rotary embedding ({', '.join(sorted(names))}) depends on the length of what is run together"
    return None


def _rope_types(config: PretrainedConfig) -> set[str]:
    """The rope types of all layers, or of each layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    by_type = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return {str(entry.get("rope_type", "default")) for entry in (parameters, *by_type)}


def use(network: PreTrainedModel) -> None:
    """Makes a model's forward pass use tree attention, for which it must be given `segments` and `kept`."""
    AttentionInterface.register(NAME, attention)
    network.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    segments: Segments | None = None,
    kept: KeyValues | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Stores the tokens' keys and values, and attends to all that `segments` says each token sees: (1, tokens, heads,
    width).

    `query`: (1, heads, tokens, width); `key`, `value`: (1, key heads, tokens, width), all in the network's type.
    `segments` and `kept`, the store, are `CALL`'s in a compiled layer. `sliding_window`: tokens that each sees, itself
    included. Raises `NotImplementedError` for `softcap` or sinks, `s_aux`.
    """
    if softcap is not None or s_aux is not None:
        raise NotImplementedError("its attention has capped scores or sinks, which are not computed here")
    if segments is None or kept is None:
        return _attend_in_call(query, key, value, scaling, sliding_window), None
    place = int(module.layer_idx)  # type: ignore[arg-type]
    return _attend(query, key, value, segments, kept.layers[place], scaling, sliding_window), None


class Call(threading.local):
    """What the compiled layer that runs in a thread was called with: the segments, and its stored keys and values."""

    now: tuple[Segments, tuple[torch.Tensor, torch.Tensor]] | None = None


CALL = Call()


@torch.library.custom_op("unprm::attend", mutates_args=())
def _attend_in_call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, sliding_window: int | None
) -> torch.Tensor:
    """An operation that a compiler doesn't look into: it runs once in each call of a layer."""
    assert CALL.now is not None
    return _attend(query, key, value, *CALL.now, scaling, sliding_window)


@_attend_in_call.register_fake
def _(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, sliding_window: int | None
) -> torch.Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    segments: Segments,
    stored: tuple[torch.Tensor, torch.Tensor],
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """As `attention`; `stored`: the layer's keys and values."""
    keys, values = stored
    keys.index_copy_(0, segments.slots, key[0].transpose(0, 1))
    values.index_copy_(0, segments.slots, value[0].transpose(0, 1))
    parts = query[0].transpose(0, 1).split([packed.tokens for packed in segments.runs])
    made = [
        (_flash if packed.shapes is None else _one_by_one)(
            part, keys[packed.keys], values[packed.keys], packed, scaling, window
        )
        for part, packed in zip(parts, segments.runs, strict=True)
    ]
    return (made[0] if len(made) == 1 else torch.cat(made))[None]


def _flash(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, packed: Packed, scaling: float, window: int | None
) -> torch.Tensor:
    """(tokens, heads, width), as `query`; a token attends to the last `window` tokens, itself included."""
    varlen_attn = varlen.installed()
    assert varlen_attn is not None
    attended = varlen_attn(
        query.contiguous(),
        keys,
        values,
        packed.cu_seq_q,
        packed.cu_seq_k,
        packed.max_q,
        packed.max_k,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
    )
    assert isinstance(attended, torch.Tensor)
    return attended


def _one_by_one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, packed: Packed, scaling: float, window: int | None
) -> torch.Tensor:
    assert packed.shapes is not None
    # kernels of GPUs that take a mask, or float32, don't share key heads: all products would be in memory at once
    shares = query.device.type == "cpu"
    if not shares:
        keys, values = (varlen.repeated(tensor, query.shape[1]) for tensor in (keys, values))
    lengths, seen = zip(*packed.shapes, strict=True)
    made: list[torch.Tensor] = []
    for q, k, v in zip(query.split(lengths), keys.split(seen), values.split(seen), strict=True):
        length, count, mask = len(q), len(k), None
        if count != length or (window is not None and count > window):
            mask = torch.ones(length, count, dtype=torch.bool, device=q.device).tril(count - length)
            if window is not None:
                mask = mask.triu(count - length - window + 1)
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
        made += functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=shares
        )
    return torch.cat(made, 1).transpose(0, 1).contiguous()
