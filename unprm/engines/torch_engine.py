"""Scores with PyTorch, on a GPU or a CPU."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from unprm.formats.family import PrmFormat
from unprm.types import Encoded, ModelDescription

LOGITS = 256
"""Tokens whose logits over the whole vocabulary are in memory at once."""
Margins = Callable[[torch.Tensor, Sequence[Encoded]], torch.Tensor]
"""From padded ids, (items, length), and the items to what is scored: the margin of each position of each item in
turn, (all positions,). The sigmoid of a margin is the score."""


class TorchEngine:
    """A causal model that is read at the scored positions.

    `batch_tokens`: size of one forward pass in tokens, padding included; a single longer item runs alone.
    """

    def __init__(
        self, margins: Margins, format: PrmFormat, description: ModelDescription, batch_tokens: int = 16384
    ) -> None:
        self.format: PrmFormat = format
        self.description = description
        self._batch_tokens = batch_tokens
        self._margins: Margins | None = margins

    def score(self, batch: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Step scores per item. Items of similar length run together; padding changes no score."""
        scores: list[tuple[float, ...]] = [()] * len(batch)
        for indices in self._groups(batch):
            for index, values in zip(indices, self._forward([batch[i] for i in indices]), strict=True):
                scores[index] = values
        return scores

    def close(self) -> None:
        """Lets go of the weights."""
        self._margins = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _groups(self, batch: Sequence[Encoded]) -> Iterator[list[int]]:
        """Indices of items, longest first, in groups that fit the token budget once padded."""
        group: list[int] = []
        longest = 0
        for index in sorted(range(len(batch)), key=lambda i: -len(batch[i].ids)):
            if group and (len(group) + 1) * longest > self._batch_tokens:
                yield group
                group = []
            longest = longest if group else len(batch[index].ids)
            group.append(index)
        if group:
            yield group

    @torch.inference_mode()
    def _forward(self, items: Sequence[Encoded]) -> list[tuple[float, ...]]:
        if self._margins is None:
            raise RuntimeError("the engine is closed")
        # padded on the right: in a causal model nothing scored can see the padding, so no mask is needed
        ids = torch.zeros(len(items), max(len(item.ids) for item in items), dtype=torch.long)  # (items, length)
        for row, item in enumerate(items):
            ids[row, : len(item.ids)] = torch.tensor(item.ids)
        scores = torch.sigmoid(self._margins(ids, items)).tolist()
        counts = [len(item.positions) for item in items]
        return [tuple(scores[end - count : end]) for count, end in zip(counts, accumulate(counts), strict=True)]


class AtPositions:
    """Margins by a head on the last hidden state at each scored position."""

    def __init__(self, decoder: PreTrainedModel, head: nn.Module, device: torch.device) -> None:
        self._decoder = decoder.to(device).eval()
        self._head = head.to(device).eval()
        self._device = device

    def __call__(self, ids: torch.Tensor, items: Sequence[Encoded]) -> torch.Tensor:
        """As `Margins`."""
        rows = torch.tensor([row for row, item in enumerate(items) for _ in item.positions])
        columns = torch.tensor([position for item in items for position in item.positions])
        hidden = self._decoder(input_ids=ids.to(self._device), use_cache=False).last_hidden_state
        margins: torch.Tensor = self._head(hidden[rows.to(self._device), columns.to(self._device)])
        return margins


class LikelihoodRatios:
    """Margins by `beta` times the logarithm of how much likelier the model finds the response so far than the
    reference model does."""

    def __init__(self, model: PreTrainedModel, reference: PreTrainedModel, beta: float, device: torch.device) -> None:
        self._models = [own.to(device).eval() for own in (model, reference)]
        self._beta = beta
        self._device = device

    def __call__(self, ids: torch.Tensor, items: Sequence[Encoded]) -> torch.Tensor:
        """As `Margins`."""
        places = [(row, k) for row, item in enumerate(items) for k in range(item.response, item.positions[-1] + 1)]
        rows, columns = (torch.tensor(own, device=self._device) for own in zip(*places, strict=True))
        ids = ids.to(self._device)
        ratios = self._logprobs(self._models[0], ids, rows, columns) - self._logprobs(
            self._models[1], ids, rows, columns
        )
        counts = [item.positions[-1] + 1 - item.response for item in items]
        sums = [own.cumsum(0) for own in ratios.split(counts)]
        told = [own[[k - item.response for k in item.positions]] for own, item in zip(sums, items, strict=True)]
        return self._beta * torch.cat(told)

    @staticmethod
    def _logprobs(model: PreTrainedModel, ids: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Of the tokens at these places, in double precision so that long sums stay exact: (places,)"""
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[rows, columns - 1]
        wanted = ids[rows, columns]
        output = model.get_output_embeddings()
        parts = zip(hidden.split(LOGITS), wanted.split(LOGITS), strict=True)
        losses = [functional.cross_entropy(output(own).float(), next_, reduction="none") for own, next_ in parts]
        return -torch.cat(losses).double()
