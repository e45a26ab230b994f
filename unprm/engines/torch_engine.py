"""Scores with PyTorch, on a GPU or a CPU.

Only the last hidden state at the scored positions and the difference of two output rows are needed:
`sigmoid(logit₊ − logit₋)`. The logits over the whole vocabulary are never computed.
"""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel

from unprm.formats.unprm import UnprmFormat
from unprm.types import Encoded, ModelDescription


class TorchEngine:
    """A causal language model, adapter merged, that is read at the step tags.

    `batch_tokens`: size of one forward pass in tokens, padding included; a single longer item runs alone.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        format: UnprmFormat,
        description: ModelDescription,
        batch_tokens: int = 16384,
    ) -> None:
        self.format: UnprmFormat = format
        self.description = description
        self._batch_tokens = batch_tokens
        self._decoder = model.get_decoder().eval()
        rows = model.get_output_embeddings().weight.detach()
        config = format.config
        self._direction = (rows[config.positive_id].float() - rows[config.negative_id].float()).clone()  # (hidden,)

    def score(self, batch: Sequence[Encoded]) -> list[tuple[float, ...]]:
        """Step scores per item. Items of similar length run together; padding changes no score."""
        scores: list[tuple[float, ...]] = [()] * len(batch)
        for indices in self._groups(batch):
            for index, values in zip(indices, self._forward([batch[i] for i in indices]), strict=True):
                scores[index] = values
        return scores

    def close(self) -> None:
        """Lets go of the weights."""
        del self._decoder
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
        device = self._direction.device
        length = max(len(item.ids) for item in items)
        # padded on the right: in a causal model nothing scored can see the padding, so no mask is needed
        ids = torch.zeros(len(items), length, dtype=torch.long)  # (items, length)
        for row, item in enumerate(items):
            ids[row, : len(item.ids)] = torch.tensor(item.ids)
        rows = torch.tensor([row for row, item in enumerate(items) for _ in item.positions])
        columns = torch.tensor([position for item in items for position in item.positions])
        hidden = self._decoder(input_ids=ids.to(device), use_cache=False).last_hidden_state
        margins = hidden[rows.to(device), columns.to(device)].float() @ self._direction  # (all tags,)
        scores = torch.sigmoid(margins).tolist()
        counts = [len(item.positions) for item in items]
        starts = [sum(counts[:row]) for row in range(len(items))]
        return [tuple(scores[start : start + count]) for start, count in zip(starts, counts, strict=True)]
