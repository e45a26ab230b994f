"""What is read off a model at tokens, and how an item's margins, whose sigmoids are its scores, are made from it."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from unprm.types import Encoded

LOGITS = 256
"""Tokens whose logits over the whole vocabulary are in memory at once."""


class Reader(Protocol):
    """Reads one value per token that matters. It depends on the sequence as far as that token and on nothing else, so
    that it holds for every sequence that begins alike."""

    @property
    def decoders(self) -> Sequence[PreTrainedModel]:
        """The networks that run."""
        ...

    @property
    def modules(self) -> Sequence[nn.Module]:
        """All that has weights."""
        ...

    @property
    def behind(self) -> int:
        """How many tokens before a token its value is read off."""
        ...

    def matter(self, item: Encoded) -> Sequence[int]:
        """Indices of the tokens whose values an item's margins are made from, ascending."""
        ...

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Values, (n,), of tokens, (n,), from the last hidden states of each network where they are read off, (n,
        hidden)."""
        ...

    def margins(self, item: Encoded, values: Sequence[float]) -> list[float]:
        """The margin of each of an item's positions, from the values of the tokens that matter."""
        ...


class AtPositions:
    """A head on the last hidden state at each scored position."""

    behind = 0

    def __init__(self, decoder: PreTrainedModel, head: nn.Module, device: torch.device) -> None:
        self.decoders = [decoder.to(device).eval()]
        self._head = head.to(device).eval()
        self.modules = [*self.decoders, self._head]

    def matter(self, item: Encoded) -> Sequence[int]:
        """As `Reader`."""
        return item.positions

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """As `Reader`."""
        margins: torch.Tensor = self._head(hidden[0])
        return margins

    def margins(self, item: Encoded, values: Sequence[float]) -> list[float]:
        """As `Reader`."""
        return list(values)


class LikelihoodRatios:
    """`beta` times the logarithm of how much likelier the model finds the response so far than the reference model
    does."""

    behind = 1

    def __init__(self, model: PreTrainedModel, reference: PreTrainedModel, beta: float, device: torch.device) -> None:
        self.modules = [network.to(device).eval() for network in (model, reference)]
        self.decoders = [network.get_decoder() for network in self.modules]
        self._beta = beta

    def matter(self, item: Encoded) -> Sequence[int]:
        """As `Reader`: the response's tokens."""
        return range(item.response, item.positions[-1] + 1)

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """As `Reader`: the logarithm of each token's ratio."""
        outputs = (network.get_output_embeddings() for network in self.modules)
        model, reference = (_logprobs(output, states, tokens) for output, states in zip(outputs, hidden, strict=True))
        return model - reference

    def margins(self, item: Encoded, values: Sequence[float]) -> list[float]:
        """As `Reader`."""
        sums = list(accumulate(values))
        return [self._beta * sums[position - item.response] for position in item.positions]


def _logprobs(output: nn.Module, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of each token, in double precision so that long sums stay exact: (n,)"""
    losses = [
        functional.cross_entropy(output(states).float(), wanted, reduction="none")
        for states, wanted in zip(hidden.split(LOGITS), tokens.split(LOGITS), strict=True)
    ]
    return -torch.cat(losses).double()
