"""Continuous batching with a transformers model: completions join and leave the batch between two tokens."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from transformers import Cache, CacheLayerMixin, DynamicCache, PreTrainedModel

from unprm.errors import ModelInvalid
from unprm.samplers import shared_prompts
from unprm.samplers.shared_prompts import GROWTH, Prompts, States
from unprm.types import SamplingSettings

KEPT = 16384
"""Tokens of recent prompts whose keys and values are cached: rollouts come in blocks from the same prompt."""

Amend = Callable[[Sequence[int], int], Sequence[int]]
"""From the ids of a text and the token drawn to follow it: the ids that follow instead, at least one. They count as
certain."""


@dataclass(slots=True, eq=False)
class Row:
    """A completion in progress: its prompt, the seed of its own random generator, what is written, and the ids `due`
    next instead of drawn ones."""

    prompt: tuple[int, ...]
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    due: deque[int] = field(default_factory=deque)
    generator: torch.Generator = field(default_factory=torch.Generator)


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values, in one layer, of what the rows have written, from their prompts' last token on; each
    (rows, heads, positions, width). `places`, (rows in use,): the positions where the next token's are stored."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.places, self.longest = rows, torch.zeros(0, dtype=torch.long), 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Makes an empty store for keys and values like these."""
        self.keys, self.values = (
            states.new_zeros(self.rows, states.shape[1], 0, states.shape[3]) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores one token's keys and values for each row in use; returns all of these rows'."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        missing = self.longest - self.keys.shape[2]
        if missing > 0:
            more = (0, 0, 0, -(-missing // GROWTH) * GROWTH)
            self.keys, self.values = (torch.nn.functional.pad(kept, more) for kept in (self.keys, self.values))
        count = len(self.places)
        rows = torch.arange(count, device=self.places.device)
        self.keys[rows, :, self.places], self.values[rows, :, self.places] = key_states[:, :, 0], value_states[:, :, 0]
        return self.keys[:count, :, : self.longest], self.values[:count, :, : self.longest]

    def move(self, source: int, target: int, length: int) -> None:
        """Copies a row to another slot."""
        if length:
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


class DecodingBatch:
    """At most `size` rows, which each get one more token per `step`. The network's attention is replaced by one that
    reads equal prompts once.

    Every row samples with its own generator, so the rest of the batch does not matter, except for the last digits of
    the arithmetic. Raises `ModelInvalid` for a model with other than full causal attention.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        settings: SamplingSettings,
        ends: Sequence[int],
        size: int,
        amend: Amend | None = None,
    ) -> None:
        kinds = set(getattr(network.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ModelInvalid(f"only full attention is known here, the model has {sorted(kinds)}: sample with vLLM")
        shared_prompts.use(network)
        self.rows: list[Row] = []
        self.size, self._amend = size, amend
        self._network, self._settings, self._ends = network, settings, frozenset(ends)
        self._window: int = network.config.max_position_embeddings
        self._layers = [_Layer(size) for _ in range(network.config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        self._prompts = Prompts(network.device)
        self._recent: OrderedDict[tuple[int, ...], States] = OrderedDict()

    @torch.inference_mode()
    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows. Equal or recent prompts are computed once, except for their last token, which `step` reads."""
        for row in rows:
            row.generator = torch.Generator(self._network.device).manual_seed(row.seed)
        self.rows += rows
        prompts = {row.prompt: None for row in rows}
        entering = [prompt for prompt in prompts if prompt not in self._prompts]
        if new := [prompt for prompt in entering if prompt not in self._recent]:
            self._compute(new)
        for prompt in entering:
            self._recent.move_to_end(prompt)
            self._prompts.add(prompt, self._recent[prompt])
        kept = sum(map(len, self._recent))
        while kept > KEPT:
            oldest, _ = self._recent.popitem(last=False)
            kept -= len(oldest)

    def _compute(self, prompts: Sequence[tuple[int, ...]]) -> None:
        longest = max(map(len, prompts))
        # padding on the right: what comes before it can't see it
        ids = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts])
        computed = DynamicCache(config=self._network.config)
        self._network.get_decoder()(input_ids=ids.to(self._network.device), past_key_values=computed)
        for number, prompt in enumerate(prompts):
            index = number, slice(None), slice(len(prompt) - 1)
            self._recent[prompt] = [(made.keys[index].clone(), made.values[index].clone()) for made in computed.layers]

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Writes one token of each row; complete rows leave the batch and are returned."""
        device = self._network.device
        tokens = torch.tensor([(row.ids or row.prompt)[-1] for row in self.rows], device=device)
        written = torch.tensor([len(row.ids) for row in self.rows], device=device)
        before = torch.tensor([len(row.prompt) - 1 for row in self.rows], device=device)
        longest = int(written.max()) + 1
        for layer in self._layers:
            layer.places, layer.longest = written, longest
        seen = torch.arange(longest, device=device) <= written[:, None]  # (rows, positions)
        logits = self._network(
            input_ids=tokens[:, None],
            attention_mask=seen[:, None, None],
            position_ids=(before + written)[:, None],
            past_key_values=self._cache,
            shared=self._prompts.shared([row.prompt for row in self.rows]),
        ).logits[:, -1]
        logprobs = torch.log_softmax(logits.float(), dim=-1)  # (rows, vocabulary), before temperature
        chosen = self._draw(logprobs)
        chosen_logprobs = logprobs.gather(1, chosen[:, None])[:, 0]
        for row, token, logprob in zip(self.rows, chosen.tolist(), chosen_logprobs.tolist(), strict=True):
            if (
                self._amend
                and not row.due
                and (instead := tuple(self._amend((*row.prompt, *row.ids), token))) != (token,)
            ):
                row.due.extend(instead)
            row.logprobs.append(0.0 if row.due else logprob)
            row.ids.append(row.due.popleft() if row.due else token)
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
                    layer.move(len(self.rows), slot, len(last.ids))
        if rows:
            self._prompts.keep({row.prompt for row in self.rows})

    def _is_complete(self, row: Row) -> bool:
        room = self._window - len(row.prompt)
        return self.ended(row) or len(row.ids) >= min(self._settings.max_tokens, room)

    def _draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        """Samples a token per row from (rows, vocabulary), by the Gumbel-max trick (an exponential race)."""
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
    """Masks all but the most likely tokens, the fewest that together reach probability `top_p`."""
    ranked, order = logprobs.sort(dim=-1, descending=True)
    before = ranked.exp().cumsum(dim=-1) - ranked.exp()
    return logprobs.masked_fill((before >= top_p).gather(1, order.argsort(dim=-1)), -torch.inf)
