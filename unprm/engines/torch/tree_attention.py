"""Attention over a tree of tokens: each attends to the tokens of its own sequence up to itself, which may have been
computed in earlier passes.

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
from torch.nn import functional
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from unprm.engines.torch.prefix_tree import Slots

NAME = "unprm_tree"
CLOSE = 1.25
"""Spans are padded together up to this ratio of their lengths, and of the lengths of what they attend to."""
TOGETHER = 65_536
"""Most keys that are gathered at once, padding included; a single span may exceed it."""
LAYERS = {"full_attention", "sliding_attention"}
"""Layer types that can be computed over a tree; others mix tokens in their own order."""
BY_LENGTH = {"dynamic", "longrope"}
"""Types of rotary embeddings that depend on the length of the longest sequence of a pass."""
_FLASH = (torch.float16, torch.bfloat16)


class KeyValues:
    """Keys and values of tokens, in slots, for every layer of a model: (slots, key heads, width) each."""

    def __init__(self, network: PreTrainedModel, slots: int) -> None:
        shape = (slots, *_shape(network.config))
        layers = range(network.config.num_hidden_layers)
        make = {"dtype": network.dtype, "device": network.device}
        # uninitialised: on a CPU what is never used takes no memory
        self.layers = [(torch.empty(shape, **make), torch.empty(shape, **make)) for _ in layers]

    @staticmethod
    def bytes_per_token(network: PreTrainedModel) -> int:
        """Bytes of a slot."""
        heads, width = _shape(network.config)
        layers = int(network.config.num_hidden_layers)
        return 2 * layers * heads * width * int(network.dtype.itemsize)


def _shape(config: PretrainedConfig) -> tuple[int, int]:
    """The number of key heads, and the width of each."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(heads), int(width)


class Span(NamedTuple):
    """Consecutive tokens of a sequence. `slots`: of the sequence's tokens from its first to the span's last; the last
    `length` of them are the span's own."""

    slots: Slots
    length: int


class Spans:
    """The tokens of a pass, one span after the other, and what each attends to, for attention in `dtype`.

    `slots`: of the tokens, (tokens,). `packed`: the spans as FlashAttention takes them, where it is used; elsewhere
    `padded`. Everything is on the device before the first layer runs, so that no layer waits for the host.
    """

    def __init__(self, spans: Sequence[Span], device: torch.device, dtype: torch.dtype) -> None:
        self._spans = spans
        self._device = device
        self.slots = self._tensor(np.concatenate([span.slots[-span.length :] for span in spans]))
        flash = _has_flash(device, dtype)
        self.packed = self._in_runs() if flash else None
        self.padded = None if flash else self._in_groups()

    def _in_runs(self) -> "list[_Packed]":
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

    def _pack(self, spans: Sequence[Span]) -> "_Packed":
        lengths, seen = [span.length for span in spans], [len(span.slots) for span in spans]
        return _Packed(
            self._tensor(np.concatenate([span.slots for span in spans])),
            self._tensor(np.cumsum([0, *lengths])).int(),
            self._tensor(np.cumsum([0, *seen])).int(),
            max(lengths),
            max(seen),
            sum(lengths),
        )

    def _in_groups(self) -> "_Padded":
        """The spans in groups of similar shape."""
        starts = np.cumsum([0, *(span.length for span in self._spans)])
        groups = [self._group(indices, starts) for indices in _alike(self._spans)]
        flat = torch.cat([group.queries.flatten()[group.real] for group in groups])
        return _Padded(groups, flat.argsort())

    def _group(self, indices: Sequence[int], starts: np.ndarray[Any, Any]) -> "_Group":
        spans = [self._spans[index] for index in indices]
        lengths = np.array([span.length for span in spans])
        seen = np.array([len(span.slots) for span in spans])
        steps = np.arange(lengths.max())
        places = np.arange(seen.max())
        # padding repeats the last entry: its keys are finite, and no real token attends to them
        queries = starts[list(indices)][:, None] + np.minimum(steps, lengths[:, None] - 1)
        keys = np.stack([span.slots[np.minimum(places, len(span.slots) - 1)] for span in spans])
        depths = (seen - lengths)[:, None] + steps
        return _Group(
            self._tensor(queries),
            self._tensor(keys),
            self._tensor(depths),
            self._tensor(np.flatnonzero(steps < lengths[:, None])),
            bool((seen == lengths).all()),
        )

    def _tensor(self, numbers: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._device)


class _Packed(NamedTuple):
    """`keys`: slots of what each span attends to, one span after the other; `tokens`: number of the spans' own tokens;
    the rest as `varlen_attn` names it."""

    keys: torch.Tensor
    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    max_q: int
    max_k: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Group:
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


class _Padded(NamedTuple):
    """`order`: index of each token of the pass among the groups' real tokens."""

    groups: list[_Group]
    order: torch.Tensor


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


def unsupported(config: PretrainedConfig) -> str | None:
    """Why a model can't be computed over a tree, as far as its configuration shows; None if nothing speaks against."""
    layers = set(getattr(config, "layer_types", None) or ()) - LAYERS
    if layers:
        return f"it has layers of the types {', '.join(sorted(layers))}"
    if not getattr(config, "num_attention_heads", None):
        return f"models of the type {config.model_type} have no attention"
    if getattr(config, "alibi", False):
        return "its attention leans on distances (ALiBi)"
    if names := _rope_types(config) & BY_LENGTH:
        return f"its rotary embedding ({', '.join(sorted(names))}) depends on the length of what is run together"
    return None


def _rope_types(config: PretrainedConfig) -> set[str]:
    """The rope types of all layers, or of each layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    by_type = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return {str(entry.get("rope_type", "default")) for entry in (parameters, *by_type)}


def use(network: PreTrainedModel) -> None:
    """Makes a model's forward pass use tree attention, for which it must be given `spans` and `kept`."""
    AttentionInterface.register(NAME, attention)
    network.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    spans: Spans,
    kept: KeyValues,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Stores the tokens' keys and values, and attends to all that each token sees: (1, tokens, heads, width).

    `query`: (1, heads, tokens, width); `key`, `value`: (1, key heads, tokens, width).
    Raises `NotImplementedError` for attention that it can't compute.
    """
    if softcap is not None or s_aux is not None:
        raise NotImplementedError("its attention has capped scores or sinks, which are not computed here")
    keys, values = kept.layers[int(module.layer_idx)]  # type: ignore[arg-type]
    keys.index_copy_(0, spans.slots, key[0].transpose(0, 1))
    values.index_copy_(0, spans.slots, value[0].transpose(0, 1))
    queries = query[0].transpose(0, 1)
    if spans.padded is not None:
        return _by_groups(queries, keys, values, spans.padded, scaling, sliding_window)[None], None
    assert spans.packed is not None
    return _flash(queries, keys, values, spans.packed, scaling, sliding_window)[None], None


@cache
def _has_flash(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether FlashAttention can be used: in half precision, on GPUs of the Ampere generation and later."""
    return device.type == "cuda" and dtype in _FLASH and torch.cuda.get_device_capability(device) >= (8, 0)


def _flash(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    runs: Sequence[_Packed],
    scaling: float,
    window: int | None,
) -> torch.Tensor:
    """(tokens, heads, width), as `query`; a token attends to the last `window` tokens, itself included."""
    from torch.nn.attention.varlen import varlen_attn  # slow to import, and only GPUs need it

    parts = query.split([packed.tokens for packed in runs])
    made = []
    for part, packed in zip(parts, runs, strict=True):
        attended = varlen_attn(
            part.contiguous(),
            keys[packed.keys],
            values[packed.keys],
            packed.cu_seq_q,
            packed.cu_seq_k,
            packed.max_q,
            packed.max_k,
            scale=scaling,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=True,
        )
        assert isinstance(attended, torch.Tensor)
        made.append(attended)
    return torch.cat(made)


def _by_groups(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spans: _Padded, scaling: float, window: int | None
) -> torch.Tensor:
    """As `_flash`."""
    made = [_group(query, keys, values, group, scaling, window) for group in spans.groups]
    return torch.cat(made)[spans.order]


def _group(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: _Group, scaling: float, window: int | None
) -> torch.Tensor:
    """Attention of the group's real tokens: (tokens, heads, width)."""
    mask = None
    if not group.whole or window is not None:
        places = torch.arange(group.keys.shape[1], device=query.device)
        mask = places <= group.depths[..., None]  # (spans, length, seen)
        if window is not None:
            mask &= places > group.depths[..., None] - window
        mask = mask[:, None]
    made = functional.scaled_dot_product_attention(
        query[group.queries].transpose(1, 2),
        keys[group.keys].transpose(1, 2),
        values[group.keys].transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=True,
    )
    return made.transpose(1, 2).flatten(0, 1)[group.real]
