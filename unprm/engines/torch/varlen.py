"""FlashAttention over segments of unequal lengths, `varlen_attn`, as far as the installed PyTorch has it: 2.10 brought
it, 2.11 windows and scales, and a later one key heads that several query heads share."""

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from typing import Any

import torch

Varlen = Callable[..., Any]


@cache
def installed() -> Varlen | None:
    """`fitted` of the installed PyTorch's function; None also where it has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn  # slow to import, and only GPUs need it
    except ImportError:
        return None
    return fitted(varlen_attn)


def fitted(varlen_attn: Varlen) -> Varlen | None:
    """The function for keys and values with fewer heads than the queries; None if it doesn't take windows and
    scales."""
    parameters = signature(varlen_attn).parameters
    if not {"scale", "window_size"} <= parameters.keys():
        return None
    if "enable_gqa" in parameters:
        return partial(varlen_attn, enable_gqa=True)
    return partial(_with_repeated_heads, varlen_attn)


def repeated(shared: torch.Tensor, heads: int) -> torch.Tensor:
    """Keys or values, (…, key heads, width), with one of them for each of the query's `heads`: (…, heads, width)."""
    groups = heads // shared.shape[-2]
    return shared if groups == 1 else shared.repeat_interleave(groups, -2)


def _with_repeated_heads(
    varlen_attn: Varlen, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any, **options: Any
) -> Any:
    heads = query.shape[1]
    return varlen_attn(query, repeated(key, heads), repeated(value, heads), *others, **options)
