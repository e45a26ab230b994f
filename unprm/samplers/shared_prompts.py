"""Attention of rows that continue few prompts: a prompt's keys and values are stored once, and read once for all
of its rows. On a CPU this reading is the main cost of writing tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "unprm_shared_prompts"
GROWTH = 64
"""Positions that a store of keys and values grows by."""
SPARE = 8
"""A store is cut when it has more than this many times the positions in use."""
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of a text for each layer, each (heads, length, width); of several texts (texts, heads, length,
width)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Which prompt each row continues.

    `states`: of the prompts. `seen`: (rows, 1, 1, length), true for the positions that a row's prompt has.
    `members`: (prompts, most), the rows of each prompt, padded with any row; row r is member `place[r]` of prompt
    `prompt[r]`, each (rows,).
    """

    states: States
    seen: torch.Tensor
    members: torch.Tensor
    prompt: torch.Tensor
    place: torch.Tensor


class Prompts:
    """Prompts in slots, with their keys and values, one store per layer."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: list[tuple[int, ...]] = []
        self._stores: States = []

    def __contains__(self, prompt: object) -> bool:
        return prompt in self._slots

    def add(self, prompt: tuple[int, ...], states: States) -> None:
        """Puts a prompt in a slot; `states` are of all its tokens but the last."""
        slot, length = len(self._slots), states[0][0].shape[1]
        self._slots.append(prompt)
        self._make_room(states, slot + 1, length)
        for store, layer in zip(self._stores, states, strict=True):
            for kept, new in zip(store, layer, strict=True):
                kept[slot, :, :length] = new

    def keep(self, prompts: set[tuple[int, ...]]) -> None:
        """Removes all others; the last one takes the slot of each. Also frees room that is not likely to be used."""
        for slot in reversed(range(len(self._slots))):
            if self._slots[slot] not in prompts:
                last = self._slots.pop()
                if slot < len(self._slots):
                    self._slots[slot] = last
                    for kept in (kept for store in self._stores for kept in store):
                        kept[slot, :, : len(last)] = kept[len(self._slots), :, : len(last)]
        self._free_room()

    def shared(self, prompts: Sequence[tuple[int, ...]]) -> Shared:
        """What the attention needs, given the prompt of each row."""
        slots = {prompt: slot for slot, prompt in enumerate(self._slots)}
        members: list[list[int]] = [[] for _ in self._slots]
        places = []
        for row, prompt in enumerate(prompts):
            group = members[slots[prompt]]
            places.append(len(group))
            group.append(row)
        most = max(map(len, members))
        longest = max(map(len, self._slots)) - 1
        lengths = self._tensor([len(prompt) - 1 for prompt in prompts])
        return Shared(
            states=[tuple(kept[: len(members), :, :longest] for kept in store) for store in self._stores],  # type: ignore[misc]
            seen=(torch.arange(longest, device=self._device) < lengths[:, None])[:, None, None],
            members=self._tensor([group + [0] * (most - len(group)) for group in members]),
            prompt=self._tensor([slots[prompt] for prompt in prompts]),
            place=self._tensor(places),
        )

    def _make_room(self, states: States, slots: int, length: int) -> None:
        if not self._stores:
            self._stores = [tuple(s.new_zeros(0, s.shape[0], 0, s.shape[2]) for s in layer) for layer in states]  # type: ignore[misc]
        have, _, room, _ = self._stores[0][0].shape
        more = 0 if slots <= have else max(slots, 2 * have) - have
        longer = 0 if length <= room else -(-(length - room) // GROWTH) * GROWTH
        if more or longer:
            pad = (0, 0, 0, longer, 0, 0, 0, more)
            self._stores = [tuple(torch.nn.functional.pad(s, pad) for s in store) for store in self._stores]  # type: ignore[misc]

    def _free_room(self) -> None:
        if not self._stores:
            return
        have, _, room, _ = self._stores[0][0].shape
        slots, longest = len(self._slots), max(map(len, self._slots), default=0)
        if have * room > SPARE * max(slots * longest, GROWTH):
            self._stores = [tuple(s[:slots, :, :longest].clone() for s in store) for store in self._stores]  # type: ignore[misc]

    def _tensor(self, numbers: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(numbers, device=self._device)


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
    """One token's attention for each row; without `shared`, the plain attention of whole texts.

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
