"""Attention of rows that go on from few prompts: a prompt's keys and values are stored once, and read once for all
of its rows. On a CPU this reading is what writing tokens costs most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "unprm_shared_prompts"
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of a prompt for each layer, each (heads, length, width)."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of a batch, (rows,), and the prompt that they go on from."""

    rows: torch.Tensor
    states: States


def use(network: PreTrainedModel) -> None:
    """Lets a model take `groups` in its forward pass; without them it computes as before."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    groups: Sequence[Group] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """One token's attention for each row; without `groups`, the plain attention of whole texts.

    `query`: (rows, heads, 1, width); `key`, `value`: (rows, key heads, length, width), of what the rows have
    written; `attention_mask`: (rows, 1, 1, length), true where a row has. Returns (rows, 1, heads, width).
    """
    if groups is None:
        outcome: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return outcome
    assert attention_mask is not None
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    asked = query.view(len(query), key.shape[1], -1, query.shape[3]) * scaling  # (rows, key heads, queries, width)
    own = (asked @ key.transpose(2, 3)).masked_fill(~attention_mask, -torch.inf)
    longest = max(group.states[layer][0].shape[1] for group in groups)
    scores = torch.full((*own.shape[:3], longest), -torch.inf, dtype=own.dtype, device=own.device)
    for group in groups:
        keys, _ = group.states[layer]
        found = _by_head(asked[group.rows]) @ keys.transpose(1, 2)
        scores[group.rows, ..., : keys.shape[1]] = _by_row(found, len(group.rows))
    weights = torch.cat([scores, own], dim=-1).softmax(dim=-1)
    mixed = weights[..., longest:] @ value
    for group in groups:
        _, values = group.states[layer]
        found = _by_head(weights[group.rows, ..., : values.shape[1]]) @ values
        mixed[group.rows] += _by_row(found, len(group.rows))
    return mixed.view(len(query), 1, -1, query.shape[3]), None


def _by_head(states: torch.Tensor) -> torch.Tensor:
    """From (rows, key heads, queries, n) to (key heads, rows · queries, n)."""
    return states.transpose(0, 1).flatten(1, 2)


def _by_row(states: torch.Tensor, rows: int) -> torch.Tensor:
    """Back from (key heads, rows · queries, n)."""
    rowwise: torch.Tensor = states.unflatten(1, (rows, -1))
    return rowwise.transpose(0, 1)
