"""The kernels of a GPU's attention, computed plainly, with gradients, on any device."""

from itertools import pairwise

import torch
from torch._higher_order_ops.flex_attention import flex_attention
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask

from training.prm.attention import Kernels


def _packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    key_starts: torch.Tensor,
    longest: int,
    longest_key: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> torch.Tensor:
    assert query.dtype == key.dtype == value.dtype
    assert query.is_contiguous()
    assert key.is_contiguous()
    assert value.is_contiguous()
    assert starts.dtype is key_starts.dtype is torch.int32
    assert starts[-1] == len(query)
    made = []
    for start, end in pairwise(starts.tolist()):
        assert end - start <= longest == longest_key
        rows = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        before, ahead = window_size
        mask = torch.ones(end - start, end - start, dtype=torch.bool).tril(ahead)
        if before >= 0:
            mask = mask.triu(-before)
        attended = functional.scaled_dot_product_attention(*rows, attn_mask=mask, scale=scale, enable_gqa=True)
        made.append(attended.transpose(0, 1))
    return torch.cat(made)


def _forest(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_mask: BlockMask,
    scale: float,
    enable_gqa: bool,
) -> torch.Tensor:
    assert query.dtype == key.dtype == value.dtype
    assert enable_gqa
    # the public function refuses gradients on a CPU, which its reference has
    attended, *_ = flex_attention(query, key, value, lambda score, *_: score, block_mask.as_tuple(), scale, {})
    return attended


PLAIN = Kernels(_packed, _forest)
