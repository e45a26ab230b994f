"""Values read from a model at tokens, and an item's margins, computed from them; a margin's sigmoid is a score."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from unprm.calibration import sigmoid
from unprm.types import Encoded, StepScores

LOGITS = 256
"""Number of tokens whose logits over the whole vocabulary are in memory at once."""


class Reader(ABC):
    """Reads one value at each of some tokens, which holds for every sequence with that prefix, and computes an item's
    margins from the values. `decoders`: the networks that run; `modules`: everything with weights."""

    sources: Mapping[int, Sequence[int | None]] = MappingProxyType({0: (None,)})
    """By tokens before a value's own, the layers, from 1, whose hidden states it takes; None: after the final norm."""

    def __init__(self, decoders: Sequence[PreTrainedModel], modules: Sequence[nn.Module]) -> None:
        self.decoders, self.modules = decoders, modules

    @property
    def kept(self) -> int:
        """How many layers' hidden states are kept until the last layer has run."""
        return sum(layer is not None for layers in self.sources.values() for layer in layers)

    def indices(self, item: Encoded) -> Sequence[int]:
        """Indices of the tokens whose values an item's margins are computed from, ascending."""
        return item.positions

    @abstractmethod
    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Values, (n,) or (n, numbers), of `tokens`, ids (n,). `hidden`: as `states` returns."""

    def margins(self, item: Encoded, values: Sequence[Any]) -> list[float]:
        """The margin of each of an item's positions, from the values at `indices`."""
        return list(values)


class AtPositions(Reader):
    """A head, from (n, hidden) to (n,), on the last hidden state of `decoder` at each scored position."""

    def __init__(self, decoder: PreTrainedModel, head: nn.Module, device: torch.device) -> None:
        self._head = head.to(device).eval()
        super().__init__([decoder.to(device).eval()], [decoder, self._head])

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self._head(hidden[0])
        return values


class LikelihoodRatios(Reader):
    """`beta` times the log-likelihood ratio of the response so far, of `model` to `reference`, on `device`."""

    sources = MappingProxyType({1: (None,)})

    def __init__(self, model: PreTrainedModel, reference: PreTrainedModel, beta: float, device: torch.device) -> None:
        networks = [network.to(device).eval() for network in (model, reference)]
        super().__init__([network.get_decoder() for network in networks], networks)
        self._networks, self._beta = networks, beta

    def indices(self, item: Encoded) -> Sequence[int]:
        return range(item.response, item.positions[-1] + 1)

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        outputs = (network.get_output_embeddings() for network in self._networks)  # may have been replaced
        model, reference = (log_probs(*pair, tokens) for pair in zip(outputs, hidden, strict=True))
        return model - reference

    def margins(self, item: Encoded, values: Sequence[Any]) -> list[float]:
        """Of each position, the sum of the logarithms up to it, times `beta`."""
        sums = list(accumulate(values))
        return [self._beta * sums[position - item.response] for position in item.positions]


def states(
    decoder: PreTrainedModel, sources: Mapping[int, Sequence[int | None]], places: torch.Tensor, **inputs: Any
) -> list[torch.Tensor]:
    """Runs a decoder; the hidden states of each of a reader's `sources`, (n, hidden), at `places`, (lags, n)."""
    found: dict[tuple[int, int | None], torch.Tensor] = {}
    wanted = [(lag, layer) for lag, layers in sources.items() for layer in layers]
    rows = dict(zip(sources, places, strict=True))

    def keep(key: tuple[int, int | None], made: Any) -> None:
        hidden = made[0] if isinstance(made, tuple) else made
        found[key] = hidden.flatten(0, 1)[rows[key[0]]]

    hooks = [
        _layers(decoder)[layer - 1].register_forward_hook(lambda *call, key=(lag, layer): keep(key, call[-1]))
        for lag, layer in wanted
        if layer is not None
    ]
    try:
        last = decoder(use_cache=False, **inputs).last_hidden_state
    finally:
        for hook in hooks:
            hook.remove()
    for lag, layer in wanted:
        if layer is None:
            keep((lag, layer), last)
    return [found[key] for key in wanted]


def _layers(decoder: PreTrainedModel) -> nn.ModuleList:
    count = int(decoder.config.num_hidden_layers)
    return next(child for child in decoder.children() if isinstance(child, nn.ModuleList) and len(child) == count)


def scores_of(item: Encoded, margins: Sequence[float], computed: int) -> StepScores:
    """An item's scores from its margins; `computed`: tokens that were run for it."""
    return StepScores(tuple(map(sigmoid, margins)), computed, len(item.ids))


def log_probs(output: nn.Module, hidden: torch.Tensor, tokens: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """Log-probabilities (≤ 0) of `tokens`, ids (n,) -> (n,), in double precision for long sums. `hidden`: the states
    before each token, (n, hidden); `output`: makes their logits, which are multiplied by `factor`."""
    losses = [
        functional.cross_entropy(output(states).float() * factor, wanted, reduction="none")
        for states, wanted in zip(hidden.split(LOGITS), tokens.split(LOGITS), strict=True)
    ]
    return -torch.cat(losses).double()
