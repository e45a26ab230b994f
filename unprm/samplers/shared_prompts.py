"""Attention of rows that continue few prompts: a prompt's keys and values are stored once, and read once for all
of its rows. On a CPU this reading is the main cost of writing tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "unprm_shared_prompts"
Prompt = tuple[int, ...]
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of a text for each layer, each (heads, length, width); of several texts (texts, heads, length,
width)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Which prompt each row continues.

    `states`: of the prompts. `seen`: (rows, 1, 1, length), bool, true for the positions that a row's prompt has.
    `members`: (prompts, largest), int64, the rows of each prompt, padded with row 0; row r is member `place[r]` of
    prompt `prompt[r]`, both (rows,), int64.
    """

    states: States
    seen: torch.Tensor
    members: torch.Tensor
    prompt: torch.Tensor
    place: torch.Tensor


def stacked(states: Sequence[States]) -> States:
    """The keys and values of several texts, (heads, length, width) each, padded with zeros to the longest: (texts,
    heads, longest, width)."""
    layers: States = []
    for parts in zip(*states, strict=True):
        keys, values = (
            pad_sequence([part[kind].transpose(0, 1) for part in parts], batch_first=True).transpose(1, 2)
            for kind in (0, 1)
        )
        layers.append((keys, values))
    return layers


def shared(rows: Sequence[Prompt], prompts: Sequence[Prompt], states: States) -> Shared:
    """What the attention needs, given the prompt of each row, and the `states` of the distinct `prompts`, of all their
    tokens but the last."""
    device = states[0][0].device
    numbers = {prompt: number for number, prompt in enumerate(prompts)}
    members: list[list[int]] = [[] for _ in prompts]
    places = []
    for row, prompt in enumerate(rows):
        group = members[numbers[prompt]]
        places.append(len(group))
        group.append(row)
    largest, longest = max(map(len, members)), states[0][0].shape[2]
    lengths = torch.tensor([len(prompt) - 1 for prompt in rows], device=device)
    return Shared(
        states,
        seen=(torch.arange(longest, device=device) < lengths[:, None])[:, None, None],
        members=torch.tensor([group + [0] * (largest - len(group)) for group in members], device=device),
        prompt=torch.tensor([numbers[prompt] for prompt in rows], device=device),
        place=torch.tensor(places, device=device),
    )


def use(network: PreTrainedModel) -> None:
    """Lets a model take `shared` in its forward pass; without it, it computes as before."""
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
    shared: Shared | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """One token's attention for each row; without `shared`, the plain attention of whole texts. All in the network's
    type.

    `query`: (rows, heads, 1, width); `key`, `value`: (rows, key heads, length, width), of what the rows have
    written; `attention_mask`: (rows, 1, 1, length), true where a row has. Returns (rows, 1, heads, width).
    """
    if shared is None:
        outcome: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return outcome
    assert attention_mask is not None
    keys, values = shared.states[int(module.layer_idx)]  # type: ignore[arg-type]
    queries = query.view(len(query), key.shape[1], -1, query.shape[3]) * scaling  # (rows, key heads, queries, width)
    written = (queries @ key.transpose(2, 3)).masked_fill(~attention_mask, -torch.inf)
    before = _by_row(_by_prompt(queries, shared) @ keys.transpose(2, 3), shared).masked_fill(~shared.seen, -torch.inf)
    weights = torch.cat([before, written], dim=-1).softmax(dim=-1)
    longest = before.shape[-1]
    mixed = weights[..., longest:] @ value + _by_row(_by_prompt(weights[..., :longest], shared) @ values, shared)
    return mixed.view(len(query), 1, -1, query.shape[3]), None


def _by_prompt(states: torch.Tensor, shared: Shared) -> torch.Tensor:
    """From (rows, key heads, queries, n) to (prompts, key heads, members · queries, n)."""
    return states[shared.members].transpose(1, 2).flatten(2, 3)


def _by_row(states: torch.Tensor, shared: Shared) -> torch.Tensor:
    """Back from (prompts, key heads, members · queries, n)."""
    memberwise: torch.Tensor = states.unflatten(2, (shared.members.shape[1], -1))
    return memberwise[shared.prompt, :, shared.place]
