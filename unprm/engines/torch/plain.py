"""Scores with PyTorch, one sequence after the other, each by a forward pass as the model's authors wrote it: correct
for every causal model, and the reference for faster engines."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from unprm.engines.torch.memory import plan
from unprm.engines.torch.readers import Reader, batch_scores
from unprm.errors import SolutionTooLong
from unprm.formats.family import PrmFormat
from unprm.types import BatchScores, Encoded, ModelDescription


class PlainEngine:
    """Engine for a causal model whose attention the tree of `TorchEngine` can't compute. `description` gets the memory
    that it takes."""

    def __init__(self, reader: Reader, format: PrmFormat, description: ModelDescription) -> None:
        self.format: PrmFormat = format
        memory = plan(reader.modules, reader.decoders, 0, description.max_tokens)
        self.description = replace(description, memory=memory)
        self._reader: Reader | None = reader

    def score(self, batch: Sequence[Encoded]) -> BatchScores:
        """Step scores per item; raises `SolutionTooLong` for an item that is longer than the model's window, and
        `RuntimeError` if the engine is closed."""
        check_lengths(batch, self.description.max_tokens)
        if self._reader is None:
            raise RuntimeError("the engine is closed")
        made = [margins(self._reader, item) for item in batch]
        return batch_scores(made, [len(item.needed) for item in batch])

    def close(self) -> None:
        """Frees the weights."""
        self._reader = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@torch.inference_mode()
def margins(reader: Reader, item: Encoded) -> list[Any]:
    """The margin of each of an item's positions, from a forward pass over its ids alone."""
    ids = torch.tensor([item.needed], device=reader.decoders[0].device)
    hidden = [decoder(input_ids=ids, use_cache=False).last_hidden_state[0] for decoder in reader.decoders]
    return read_margins(reader, item, hidden)


def read_margins(reader: Reader, item: Encoded, hidden: Sequence[torch.Tensor]) -> list[Any]:
    """An item's margins. `hidden`: each network's last hidden states at the item's tokens, (tokens, hidden), in the
    network's type."""
    device = hidden[0].device
    indices = list(reader.indices(item))
    places = torch.tensor([index - reader.lag for index in indices], device=device)
    tokens = torch.tensor([item.ids[index] for index in indices], device=device)
    values = reader.read([states[places] for states in hidden], tokens).tolist()
    return reader.margins(item, values)


def check_lengths(batch: Sequence[Encoded], window: int) -> None:
    """Raises `SolutionTooLong` with the first item that is longer than `window` tokens."""
    for index, item in enumerate(batch):
        if len(item.ids) > window:
            raise SolutionTooLong(index, len(item.ids), window)
