"""FlashAttention over segments, `varlen_attn`: since PyTorch 2.10, with windows 2.11, later with shared heads."""

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


def fitted(varlen_attn: Varlen, device: str = "cuda") -> Varlen | None:
    """The function for fewer key heads than query heads; None without windows and scales. Tried on `device`."""
    parameters = signature(varlen_attn).parameters
    if not {"scale", "window_size"} <= parameters.keys():
        return None
    if "enable_gqa" in parameters:
        return partial(varlen_attn, enable_gqa=True)
    repeating = partial(_with_repeated_heads, varlen_attn)
    return varlen_attn if _agree(varlen_attn, repeating, device) else repeating


@torch.inference_mode(False)
@torch.enable_grad()
def _agree(shares: Varlen, repeats: Varlen, device: str) -> bool:
    """Whether a function shares key heads without an option for it: tried on two segments, with gradients."""
    numbers = torch.Generator().manual_seed(0)
    drawn = [torch.randn(40, heads, 64, generator=numbers) for heads in (4, 2, 2)]
    found = []
    try:
        inputs = [tensor.to(device, torch.bfloat16).requires_grad_() for tensor in drawn]
        ends = torch.tensor([0, 13, 40], dtype=torch.int32, device=device)
        for function in (shares, repeats):
            attended = function(*inputs, ends, ends, 27, 27, scale=0.125, window_size=(-1, 0))
            found.append([attended, *torch.autograd.grad(attended.float().square().sum(), inputs)])
    except Exception:  # without a GPU, or of heads that differ
        return False
    return all(torch.allclose(one, other, 0.05, 0.05) for one, other in zip(*found, strict=True))


def repeated(shared: torch.Tensor, heads: int) -> torch.Tensor:
    """Keys or values, (…, key heads, width), with one of them for each of the query's `heads`: (…, heads, width)."""
    groups = heads // shared.shape[-2]
    return shared if groups == 1 else shared.repeat_interleave(groups, -2)


def _with_repeated_heads(
    varlen_attn: Varlen, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any, **options: Any
) -> Any:
    heads = query.shape[1]
    return varlen_attn(query, repeated(key, heads), repeated(value, heads), *others, **options)
