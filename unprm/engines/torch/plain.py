"""Scores with PyTorch, each sequence by a pass of its own: right for every causal model, and the reference."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from unprm.engines.torch.memory import plan
from unprm.engines.torch.readers import Reader, scores_of, states
from unprm.errors import SolutionTooLong
from unprm.formats.family import PrmFormat
from unprm.types import Encoded, ModelDescription, StepScores


class PlainEngine:
    """Engine for a causal model whose attention the tree of `TorchEngine` can't compute."""

    def __init__(self, reader: Reader, format: PrmFormat, description: ModelDescription) -> None:
        self.format: PrmFormat = format
        memory = plan(reader.modules, reader.decoders, 0, description.max_tokens, reader.kept)
        self.description = description.model_copy(update={"memory": memory})
        self._reader: Reader | None = reader

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        check_lengths(batch, self.description.max_tokens)
        if self._reader is None:
            raise RuntimeError("the engine is closed")
        return [
            scores_of(item, margins(self._reader, item, *values(self._reader, [item])), len(item.ids_to_last_position))
            for item in batch
        ]

    def close(self) -> None:
        self._reader = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@torch.inference_mode()
def values(reader: Reader, items: Sequence[Encoded]) -> list[dict[int, Any]]:
    """The values at each item's indices, by index, from one forward pass over the ids of all, padded on the right."""
    device = reader.decoders[0].device
    ids, mask = (
        pad_sequence([torch.tensor(numbers, device=device) for numbers in rows], batch_first=True)
        for rows in (
            [item.ids_to_last_position for item in items],
            [[1] * len(item.ids_to_last_position) for item in items],
        )
    )
    inputs = {"input_ids": ids} if len(items) == 1 else {"input_ids": ids, "attention_mask": mask}
    indices = [list(reader.indices(item)) for item in items]
    places = [number * ids.shape[1] + index for number, read in enumerate(indices) for index in read]
    lags = torch.tensor([*reader.sources], device=device)
    spots = torch.tensor(places, device=device) - lags[:, None]
    hidden = [each for decoder in reader.decoders for each in states(decoder, reader.sources, spots, **inputs)]
    found = iter(reader.read(hidden, ids.flatten()[places]).tolist())
    return [dict(zip(read, found, strict=False)) for read in indices]


def margins(reader: Reader, item: Encoded, known: Mapping[int, Any]) -> list[Any]:
    """The margin of each of an item's positions. `known`: values by their tokens' index."""
    return reader.margins(item, [known[index] for index in reader.indices(item)])


def check_lengths(batch: Sequence[Encoded], window: int) -> None:
    for index, item in enumerate(batch):
        if len(item.ids) > window:
            raise SolutionTooLong(index, len(item.ids), window)
