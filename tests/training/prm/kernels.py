"""The kernel of a GPU's attention, computed plainly, with gradients, on any device."""

from itertools import pairwise

import torch
from torch.nn import functional


def packed(
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
