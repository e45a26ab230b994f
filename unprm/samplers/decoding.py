"""Continuous batching with a transformers model: completions join and leave the batch between two tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Cache,
    CacheLayerMixin,
    DynamicCache,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from unprm.errors import ModelInvalid
from unprm.types import SamplingSettings

Prompt = tuple[int, ...]

GROWTH = 64
"""Positions that the store of keys and values grows by."""


ATTENTION = "unprm_decoding"


@dataclass(slots=True, eq=False)
class Row:
    """A completion in progress: its prompt, the seed of its own random generator, and what is written."""

    prompt: Prompt
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    generator: torch.Generator = field(default_factory=torch.Generator)

    @property
    def stored(self) -> int:
        """Tokens whose keys and values are stored: all but the last, which the next step reads."""
        return len(self.prompt) + len(self.ids) - 1


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of the rows' tokens in one layer, each (rows, heads, positions, width). `places`, (rows in use,):
    the positions where the next token's are stored."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.places, self.longest = rows, torch.zeros(0, dtype=torch.long), 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Makes an empty store for keys and values like these, (rows, heads, positions, width)."""
        self.keys, self.values = (
            states.new_zeros(self.rows, states.shape[1], 0, states.shape[3]) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def begin(self, rows: Sequence[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Stores a prompt's keys and values, (heads, length, width) each, for these rows."""
        if not self.is_initialized:
            self.lazy_initialization(keys[None], values[None])
        length = keys.shape[1]
        self._grow(length)
        for row in rows:
            self.keys[row, :, :length], self.values[row, :, :length] = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores one token's keys and values, (rows in use, heads, 1, width), for each row; returns all that these rows
        have, (rows in use, heads, longest, width)."""
        self._grow(self.longest)
        count = len(self.places)
        rows = torch.arange(count, device=self.places.device)
        self.keys[rows, :, self.places], self.values[rows, :, self.places] = key_states[:, :, 0], value_states[:, :, 0]
        return self.keys[:count, :, : self.longest], self.values[:count, :, : self.longest]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` positions of row `source` to row `target`."""
        self.keys[target, :, :length] = self.keys[source, :, :length]
        self.values[target, :, :length] = self.values[source, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that `update` returns."""
        return self.longest, 0

    def get_seq_length(self) -> int:
        """Positions that the longest row has filled."""
        return self.longest

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1

    def _grow(self, length: int) -> None:
        if (missing := length - self.keys.shape[2]) > 0:
            more = (0, 0, 0, -(-missing // GROWTH) * GROWTH)
            self.keys, self.values = (functional.pad(kept, more) for kept in (self.keys, self.values))


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """PyTorch's attention of queries, (rows, heads, positions, width), to keys and values, (rows, key heads, positions,
    width), the values' width being their own. For one new token per row, query heads that share a key head become
    positions of it, which saves transformers' copy of the keys for every query head. Returns (rows, positions, heads,
    the values' width)."""
    rows, heads, positions, width = query.shape
    if positions > 1:
        states, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
        return states, None
    grouped = query.reshape(rows, key.shape[1], -1, width)
    states = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return states.reshape(rows, 1, heads, -1), None


class DecodingBatch:
    """At most `size` rows, which each get one more token per `step`. `ends`: the ids that end a text.

    Every row samples with its own generator, so the rest of the batch does not matter, except for the last digits of
    the arithmetic. Raises `ModelInvalid` for a model with other than full causal attention.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        settings: SamplingSettings,
        ends: Sequence[int],
        size: int,
    ) -> None:
        kinds = set(getattr(network.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ModelInvalid(f"only full attention is known here, the model has {sorted(kinds)}: sample with vLLM")
        AttentionInterface.register(ATTENTION, attention)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        network.set_attn_implementation(ATTENTION)
        self.rows: list[Row] = []
        self.size = size
        self._network, self._settings, self._ends = network, settings, frozenset(ends)
        self._window: int = network.config.max_position_embeddings
        self._layers = [_Layer(size) for _ in range(network.config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)

    @torch.inference_mode()
    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows. Equal prompts are computed once, except for their last token, which `step` reads."""
        slots: dict[Prompt, list[int]] = {}
        for slot, row in enumerate(rows, len(self.rows)):
            row.generator = torch.Generator(self._network.device).manual_seed(row.seed)
            slots.setdefault(row.prompt, []).append(slot)
        self.rows += rows
        longest = max(map(len, slots))
        # padding on the right: what comes before it can't see it
        ids = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in slots])
        computed = DynamicCache(config=self._network.config)
        self._network.get_decoder()(input_ids=ids.to(self._network.device), past_key_values=computed)
        for layer, made in zip(self._layers, computed.layers, strict=True):
            for number, (prompt, places) in enumerate(slots.items()):
                known = number, slice(None), slice(len(prompt) - 1)
                layer.begin(places, made.keys[known], made.values[known])

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Writes one token of each row; complete rows leave the batch and are returned."""
        device = self._network.device
        tokens = torch.tensor([(row.ids or row.prompt)[-1] for row in self.rows], device=device)
        places = torch.tensor([row.stored for row in self.rows], device=device)
        longest = int(places.max()) + 1
        for layer in self._layers:
            layer.places, layer.longest = places, longest
        seen = torch.arange(longest, device=device) <= places[:, None]  # (rows, positions)
        logits = self._network(
            input_ids=tokens[:, None],
            attention_mask=seen[:, None, None],
            position_ids=places[:, None],
            past_key_values=self._cache,
        ).logits[:, -1]
        logprobs = torch.log_softmax(logits.float(), dim=-1)  # (rows, vocabulary), before temperature
        chosen = self._draw(logprobs)
        chosen_logprobs = logprobs.gather(1, chosen[:, None])[:, 0]
        for row, token, logprob in zip(self.rows, chosen.tolist(), chosen_logprobs.tolist(), strict=True):
            row.logprobs.append(logprob)
            row.ids.append(token)
        complete = [row for row in self.rows if self._is_complete(row)]
        self.remove(complete)
        return complete

    def ended(self, row: Row) -> bool:
        """Whether the row's last token ends its text."""
        return bool(row.ids) and row.ids[-1] in self._ends

    @torch.inference_mode()
    def remove(self, rows: Sequence[Row]) -> None:
        """Removes rows; the last one in the batch takes the slot of each."""
        for slot in sorted((self.rows.index(row) for row in rows), reverse=True):
            last = self.rows.pop()
            if slot < len(self.rows):
                self.rows[slot] = last
                for layer in self._layers:
                    layer.move(len(self.rows), slot, last.stored)

    def _is_complete(self, row: Row) -> bool:
        room = self._window - len(row.prompt)
        return self.ended(row) or len(row.ids) >= min(self._settings.max_tokens, room)

    def _draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        """Samples a token per row, (rows,), int64, from log-probabilities (rows, vocabulary), float32, by the
        Gumbel-max trick (an exponential race)."""
        if self._settings.temperature == 0:
            return logprobs.argmax(dim=-1)
        scaled = torch.log_softmax(logprobs / self._settings.temperature, dim=-1)
        if self._settings.top_p < 1:
            scaled = _nucleus(scaled, self._settings.top_p)
        noise = torch.empty_like(scaled)
        for number, row in enumerate(self.rows):
            noise[number].exponential_(generator=row.generator)
        return (scaled - noise.log()).argmax(dim=-1)


def _nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Log-probabilities (rows, vocabulary) with -inf for all but the most likely tokens, the fewest that together reach
    probability `top_p`."""
    ranked, order = logprobs.sort(dim=-1, descending=True)
    before = ranked.exp().cumsum(dim=-1) - ranked.exp()
    return logprobs.masked_fill((before >= top_p).gather(1, order.argsort(dim=-1)), -torch.inf)
