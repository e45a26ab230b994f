"""Continuous batching with a transformers model: completions join and leave the batch between two tokens."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
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

from unprm.engines.torch.attention import unsupported
from unprm.engines.torch.graphs import CudaGraphs, Record
from unprm.engines.torch.probe import ProbeReader
from unprm.errors import ModelInvalid
from unprm.samplers.drawing import NEXT, counter, draw, nucleus
from unprm.types import SamplingSettings

logger = logging.getLogger(__name__)

Prompt = tuple[int, ...]

GROWTH = 64
"""Positions that the store of keys and values grows by."""
TOGETHER = 128
"""Rows of a recorded step are a multiple of so many."""
ALIGNMENT = 16
"""A step attends to a multiple of so many positions: what GPUs' attention asks of a mask."""

ATTENTION = "unprm_decoding"


@dataclass(slots=True, eq=False)
class Row:
    """A completion in progress. `seed`: of its tokens; `values`: a probe's, of all tokens but the last."""

    prompt: Prompt
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)

    @property
    def context(self) -> Prompt:
        return (*self.prompt, *self.ids)

    @property
    def stored(self) -> int:
        """Tokens whose keys and values are stored: all but the last, which the next step reads."""
        return len(self.prompt) + len(self.ids) - 1


@dataclass(slots=True)
class _Step:
    """The rows that a step reads, the `places` of their tokens in the store, and the `longest` attended positions."""

    rows: torch.Tensor
    places: torch.Tensor
    longest: int


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of the rows' tokens in one layer, each (rows, heads, positions, width)."""

    step: _Step

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Makes an empty store for keys and values like these, (rows, heads, positions, width)."""
        self.keys, self.values = (
            states.new_zeros(0, states.shape[1], 0, states.shape[3]) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def free(self) -> None:
        self.keys = self.values = torch.empty(0)
        self.is_initialized = False

    def begin(self, first: int, keys: torch.Tensor, values: torch.Tensor, longest: int) -> bool:
        """Stores prompts' keys and values, (rows, heads, length, width), from row `first` on. Whether it was copied."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        rows, length = first + len(keys), keys.shape[2]
        copied = self.fit(rows, longest)
        self.keys[first:rows, :, :length], self.values[first:rows, :, :length] = keys, values
        return copied

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores a token's keys and values, (rows, heads, 1, width), per row; returns (rows, heads, longest, width)."""
        rows, places, longest = self.step.rows, self.step.places, self.step.longest
        count = len(rows)
        self.fit(count, longest)
        self.keys[rows, :, places], self.values[rows, :, places] = key_states[:, :, 0], value_states[:, :, 0]
        return self.keys[:count, :, :longest], self.values[:count, :, :longest]

    def move(self, sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        """Copies the first `length` positions of rows `sources` to rows `targets`, (rows,) each."""
        for stored in (self.keys, self.values):
            stored[targets, :, :length] = stored[sources, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.step.longest, 0

    def get_seq_length(self) -> int:
        return self.step.longest

    def get_max_length(self) -> int:
        return -1

    def fit(self, rows: int, positions: int) -> bool:
        """Makes room for so many rows and positions; what is beyond may be dropped. Whether the store was copied."""
        if rows <= self.keys.shape[0] and positions <= self.keys.shape[2]:
            return False
        length = -(-positions // GROWTH) * GROWTH
        more = (0, 0, 0, length - self.keys.shape[2], 0, 0, 0, rows - self.keys.shape[0])
        self.keys = functional.pad(self.keys, more)
        self.values = functional.pad(self.values, more)
        return True


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Attention of queries, (rows, heads, positions, width), to keys and values, (rows, key heads, positions, width) ->
    (rows, positions, heads, width). For one new token, query heads become positions of their key head, without
    copies."""
    rows, heads, positions, width = query.shape
    if positions > 1:
        states, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
        return states, None
    grouped = query.reshape(rows, key.shape[1], -1, width)
    states = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return states.reshape(rows, 1, heads, -1), None


class DecodingBatch:
    """At most `size` rows, which each get one more token per `step`. `ends`: ids that end a text. `probe`: of
    `network`. `record`: records a step, on a GPU as a CUDA graph.

    A row's random numbers depend on its seed and place alone, so the rest of the batch matters only by rounding. Raises
    `ModelInvalid` for a model that attends to less than all before, or whose rows depend on others' lengths.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        settings: SamplingSettings,
        ends: Sequence[int],
        size: int,
        probe: ProbeReader | None = None,
        record: Record | None = None,
    ) -> None:
        reason = unsupported(network.config)
        kinds = set(getattr(network.config, "layer_types", None) or ()) - {"full_attention"}
        if kinds and reason is None:
            reason = f"it has {' and '.join(sorted(kinds))} layers"
        if reason is not None:
            raise ModelInvalid(f"the sampler transformers can't run this model: {reason}; sample with vLLM")
        AttentionInterface.register(ATTENTION, attention)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        network.set_attn_implementation(ATTENTION)
        self.rows: list[Row] = []
        self.size = size
        self._network, self._settings, self._ends, self._probe = network, settings, [*ends], probe
        self._window: int = network.config.max_position_embeddings
        self._layers = [_Layer() for _ in range(network.config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        # of each row: its last token, the token's position, and the counter that the next one is drawn with
        self._state = torch.zeros(3, size, dtype=torch.long, device=network.device)
        self._advance = torch.tensor([[1], [NEXT]], device=network.device)
        self._numbers = torch.arange(size, device=network.device)
        # on the host, of each row: the token's position, tokens since it joined, and the most that these may become;
        # and what was written since then: ids, log-probabilities, a probe's values
        self._places, self._count, self._most = self._host = np.zeros((3, size), np.int64)
        self._written = np.empty((2 if probe is None else 3, size, GROWTH))
        self._record = record or (CudaGraphs() if network.device.type == "cuda" else None)
        self._steps: dict[tuple[int, int], Callable[[], object] | None] = {}
        self._made = torch.empty(len(self._written), size, dtype=torch.double, device=network.device)

    @torch.inference_mode()
    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows, also of an earlier batch. Equal contexts are computed once, but for their last token."""
        device, first, last = self._network.device, len(self.rows), len(self.rows) + len(rows)
        numbers: dict[Prompt, int] = {}
        order = [numbers.setdefault(row.context, len(numbers)) for row in rows]
        longest = max(map(len, numbers))
        # padding on the right: what comes before it can't see it
        ids = torch.tensor([[*context, *[0] * (longest - len(context))] for context in numbers])
        computed = DynamicCache(config=self._network.config)
        self._network.get_decoder()(input_ids=ids.to(device), past_key_values=computed)
        self.rows += rows
        state = [(row.context[-1], row.stored, counter(row.seed, len(row.ids))) for row in rows]
        self._state[:, first:last] = torch.tensor(state, device=device).T
        self._host[:, first:last] = np.transpose([(row.stored, 0, self._room(row)) for row in rows])
        chosen, longest = torch.tensor(order, device=device), max(self._longest(), longest)
        pairs = zip(self._layers, computed.layers, strict=True)
        if sum(layer.begin(first, made.keys[chosen], made.values[chosen], longest) for layer, made in pairs):
            self._steps.clear()

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Writes one token of each row; complete rows leave the batch and are returned."""
        count = len(self.rows)
        self._compute(count)
        made = self._made[:, :count]
        self._state[0, :count] = made[0].long()
        self._state[1:, :count] += self._advance
        written = made.cpu().numpy()  # copied together, as each copy is waited for
        if self._count[:count].max() >= self._written.shape[2]:
            self._written = np.concatenate([self._written, np.empty_like(self._written)], axis=2)
        self._written[:, np.arange(count), self._count[:count]] = written
        self._host[:2, :count] += 1
        complete = np.isin(written[0], self._ends) | (self._count >= self._most)[:count]
        rows = [self.rows[slot] for slot in np.flatnonzero(complete)]
        self.remove(rows)
        return rows

    def ended(self, row: Row) -> bool:
        return bool(row.ids) and row.ids[-1] in self._ends

    def is_complete(self, row: Row) -> bool:
        """Whether the row, which is not in the batch, gets no more tokens."""
        return self.ended(row) or self._room(row) <= 0

    @torch.inference_mode()
    def remove(self, rows: Sequence[Row]) -> None:
        """Removes rows; the last ones in the batch take their slots."""
        if not rows:
            return
        gone, before = set(rows), len(self.rows)
        slots = [slot for slot, row in enumerate(self.rows) if row in gone]
        self._tell(slots)
        kept = before - len(slots)
        free = [slot for slot in slots if slot < kept]
        moving = sorted({*range(kept, before)}.difference(slots))
        if moving:
            sources, targets = torch.tensor([moving, free], device=self._network.device)
            self._state[:, targets] = self._state[:, sources]
            for layer in self._layers:
                layer.move(sources, targets, int(self._places[moving].max()))
            self._written[:, free] = self._written[:, moving]
            self._host[:, free] = self._host[:, moving]
        self._state[:, kept:before] = 0
        for source, target in zip(moving, free, strict=True):
            self.rows[target] = self.rows[source]
        del self.rows[kept:]

    def clear(self) -> None:
        """Removes all rows and frees what is stored of them."""
        self._tell(range(len(self.rows)))
        self.rows.clear()
        self._state.zero_()
        self._steps.clear()
        for layer in self._layers:
            layer.free()

    def _tell(self, slots: Iterable[int]) -> None:
        for slot in slots:
            row, (ids, logprobs, *values) = self.rows[slot], self._written[:, slot, : self._count[slot]].tolist()
            # the first ones of a new row are of its prompt's last token
            row.values += list(map(list, zip(*values, strict=True)))[0 if row.ids else 1 :]
            row.ids += map(int, ids)
            row.logprobs += logprobs
            self._count[slot] = 0

    def _room(self, row: Row) -> int:
        """Tokens that the row may still get."""
        return min(self._settings.max_tokens, self._window - len(row.prompt)) - len(row.ids)

    def _longest(self) -> int:
        return int(self._places[: len(self.rows)].max()) + 1

    def _compute(self, count: int) -> None:
        """Computes the next tokens of so many rows; a size that was just run, rounded up, is recorded."""
        if self._record is None:
            self._run(count, -(-self._longest() // ALIGNMENT) * ALIGNMENT)
            return
        rows, longest = min(-(-count // TOGETHER) * TOGETHER, self.size), -(-self._longest() // GROWTH) * GROWTH
        if sum(layer.fit(rows, longest) for layer in self._layers):
            self._steps.clear()  # they use the stores of before
        run = partial(self._run, rows, longest)
        if (rows, longest) not in self._steps:
            self._steps[rows, longest] = None
            return run()
        replay = self._steps[rows, longest]
        if replay is None:
            try:
                replay = self._steps[rows, longest] = self._record(run)
            except Exception as error:  # whatever of a model can't be recorded, its steps are right without
                logger.warning("steps are not recorded, they are slower: %s: %s", type(error).__name__, error)
                self._record, replay = None, run
        replay()

    def _run(self, count: int, longest: int) -> None:
        tokens, places, counters = self._state[:, :count]
        step = _Step(self._numbers[:count], places, longest)
        for layer in self._layers:
            layer.step = step
        unseen = torch.arange(longest, device=places.device) > places[:, None]  # (rows, positions)
        mask = torch.zeros_like(unseen, dtype=self._network.dtype).masked_fill_(unseen, -torch.inf)
        made = self._network(
            input_ids=tokens[:, None],
            attention_mask=mask[:, None, None],
            position_ids=places[:, None],
            past_key_values=self._cache,
            output_hidden_states=self._probe is not None,
        )
        logprobs = torch.log_softmax(made.logits[:, -1].float(), dim=-1)  # (rows, vocabulary), before temperature
        chosen = self._draw(logprobs, counters)
        self._made[0, :count] = chosen
        self._made[1, :count] = logprobs.gather(1, chosen[:, None])[:, 0]
        if self._probe is not None:
            states = [made.hidden_states[layer][:, -1] for layer in self._probe.layers]
            self._made[2:, :count] = self._probe.values(states).T

    def _draw(self, logprobs: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
        """Samples a token per row, (rows,), int64, from log-probabilities (rows, vocabulary), float32."""
        if self._settings.temperature == 0:
            return logprobs.argmax(dim=-1)
        weights = torch.softmax(logprobs / self._settings.temperature, dim=-1)
        if self._settings.top_p < 1:
            weights = nucleus(weights, self._settings.top_p)
        return draw(weights, counters)
