"""Scores with PyTorch, on a GPU or a CPU.

What items of a batch begin with alike, the question of candidates, is run once: they become a tree of tokens, and
each token sees its own sequence alone. Where there is little to share they are padded instead.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from unprm.engines.prefix_tree import Tree, forest
from unprm.formats.family import PrmFormat
from unprm.types import BatchScores, Encoded, ModelDescription

WORTH = 0.8
"""A tree is worth it if it has at most this share of the tokens: its attention costs more than that of padded rows."""
LOGITS = 256
"""Tokens whose logits over the whole vocabulary are in memory at once."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The input of one forward pass. `ids`: (rows, length). `items`: what is scored; `places`: of each where its tokens
    stand in the flattened ids. `depths`, as ids, and `visible`, (length, length): of a tree, which is one row."""

    ids: torch.Tensor
    items: Sequence[Encoded]
    places: Sequence[torch.Tensor]
    depths: torch.Tensor | None = None
    visible: torch.Tensor | None = None

    @classmethod
    def padded(cls, items: Sequence[Encoded]) -> "Pass":
        """A row per item, padded on the right: nothing scored can see the padding, so no mask is needed."""
        length = max(len(item.ids) for item in items)
        ids = torch.zeros(len(items), length, dtype=torch.long)
        for row, item in enumerate(items):
            ids[row, : len(item.ids)] = torch.tensor(item.ids)
        return cls(ids, items, [row * length + torch.arange(len(item.ids)) for row, item in enumerate(items)])

    @classmethod
    def of_tree(cls, tree: Tree, items: Sequence[Encoded]) -> "Pass":
        """Items whose sequences were added to the tree in this order."""
        ids, depths = torch.tensor([tree.ids]), torch.tensor([tree.depths])
        return cls(ids, items, list(map(torch.tensor, tree.paths)), depths, tree.visible())

    def hidden(self, decoder: PreTrainedModel) -> torch.Tensor:
        """The decoder's last hidden state at each of the flattened ids: (rows · length, hidden)."""
        device, dtype = decoder.device, decoder.dtype
        more = {}
        if self.visible is not None and self.depths is not None:
            hide = torch.where(self.visible, 0.0, torch.finfo(dtype).min).to(dtype)
            more = {"position_ids": self.depths.to(device), "attention_mask": hide[None, None].to(device)}
        made: torch.Tensor = decoder(input_ids=self.ids.to(device), use_cache=False, **more).last_hidden_state
        return made.flatten(0, 1)


Margins = Callable[[Pass], torch.Tensor]
"""What is scored: the margin of each position of each item in turn, (all positions,). Its sigmoid is the score."""


class TorchEngine:
    """A causal model that is read at the scored positions.

    `batch_tokens`: size of one forward pass in tokens, padding included; a single longer item runs alone.
    `tree_tokens`: size of a tree. `reach`: tokens that attention looks back at; a longer item is never part of a tree.
    """

    def __init__(
        self,
        margins: Margins,
        format: PrmFormat,
        description: ModelDescription,
        batch_tokens: int,
        tree_tokens: int,
        reach: int,
    ) -> None:
        self.format: PrmFormat = format
        self.description = description
        self._batch_tokens = batch_tokens
        self._tree_tokens = min(tree_tokens, batch_tokens)
        self._reach = reach
        self._margins: Margins | None = margins

    def score(self, batch: Sequence[Encoded]) -> BatchScores:
        """Step scores per item; they depend on nothing else in the batch."""
        scores: list[tuple[float, ...]] = [()] * len(batch)
        computed = [0] * len(batch)
        for indices, own, costs in self._passes(batch):
            for index, values, cost in zip(indices, self._forward(own), costs, strict=True):
                scores[index], computed[index] = values, cost
        return BatchScores(scores, computed)

    def close(self) -> None:
        """Lets go of the weights."""
        self._margins = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _passes(self, batch: Sequence[Encoded]) -> Iterator[tuple[list[int], Pass, list[int]]]:
        """Forward passes with the items of each, as indices, and the tokens that are run for each."""
        alone = [i for i, item in enumerate(batch) if len(item.ids) > self._reach]
        near = {i: item.ids for i, item in enumerate(batch) if len(item.ids) <= self._reach}
        for indices, tree in forest(near, self._tree_tokens):
            if len(tree) <= WORTH * sum(map(len, tree.paths)):
                yield indices, Pass.of_tree(tree, [batch[i] for i in indices]), tree.computed
            else:
                alone += indices
        for indices in self._groups(batch, alone):
            items = [batch[i] for i in indices]
            yield indices, Pass.padded(items), [len(item.ids) for item in items]

    def _groups(self, batch: Sequence[Encoded], indices: Sequence[int]) -> Iterator[list[int]]:
        """Items, longest first, in groups that fit the token budget once padded."""
        group: list[int] = []
        longest = 0
        for index in sorted(indices, key=lambda i: -len(batch[i].ids)):
            if group and (len(group) + 1) * longest > self._batch_tokens:
                yield group
                group = []
            longest = longest if group else len(batch[index].ids)
            group.append(index)
        if group:
            yield group

    @torch.inference_mode()
    def _forward(self, own: Pass) -> list[tuple[float, ...]]:
        if self._margins is None:
            raise RuntimeError("the engine is closed")
        scores = torch.sigmoid(self._margins(own)).tolist()
        counts = [len(item.positions) for item in own.items]
        return [tuple(scores[end - count : end]) for count, end in zip(counts, accumulate(counts), strict=True)]


class AtPositions:
    """Margins by a head on the last hidden state at each scored position."""

    def __init__(self, decoder: PreTrainedModel, head: nn.Module, device: torch.device) -> None:
        self._decoder = decoder.to(device).eval()
        self._head = head.to(device).eval()

    def __call__(self, own: Pass) -> torch.Tensor:
        """As `Margins`."""
        scored = torch.cat([place[list(item.positions)] for item, place in zip(own.items, own.places, strict=True)])
        hidden = own.hidden(self._decoder)
        margins: torch.Tensor = self._head(hidden[scored.to(hidden.device)])
        return margins


class LikelihoodRatios:
    """Margins by `beta` times the logarithm of how much likelier the model finds the response so far than the
    reference model does."""

    def __init__(self, model: PreTrainedModel, reference: PreTrainedModel, beta: float, device: torch.device) -> None:
        self._models = [network.to(device).eval() for network in (model, reference)]
        self._beta = beta

    def __call__(self, own: Pass) -> torch.Tensor:
        """As `Margins`."""
        spans = [slice(item.response - 1, item.positions[-1]) for item in own.items]  # what foretells the response
        before = torch.cat([place[span] for place, span in zip(own.places, spans, strict=True)])
        responses = [item.ids[item.response : item.positions[-1] + 1] for item in own.items]
        wanted = torch.tensor([token for response in responses for token in response])
        model, reference = (self._logprobs(network, own, before, wanted) for network in self._models)
        ratios = (model - reference).split(list(map(len, responses)))
        ends = [[position - item.response for position in item.positions] for item in own.items]
        return self._beta * torch.cat([part.cumsum(0)[end] for part, end in zip(ratios, ends, strict=True)])

    @staticmethod
    def _logprobs(network: PreTrainedModel, own: Pass, before: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Of the wanted tokens after these places, in double precision so that long sums stay exact: (places,)"""
        hidden, output = own.hidden(network.get_decoder()), network.get_output_embeddings()
        parts = zip(before.split(LOGITS), wanted.to(hidden.device).split(LOGITS), strict=True)
        losses = [
            functional.cross_entropy(output(hidden[places.to(hidden.device)]).float(), next_, reduction="none")
            for places, next_ in parts
        ]
        return -torch.cat(losses).double()
