"""Bases in memory whose tensors several networks share, each with an adapter of its own beside them."""

import copy
from itertools import chain
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from transformers import PreTrainedModel

from unprm.checkpoints import lora
from unprm.checkpoints.files import LOADING, PrmFiles, StoredDtype, adapted, load_base, load_merged

_BASES: WeakValueDictionary[tuple[Path, StoredDtype, torch.device], PreTrainedModel] = WeakValueDictionary()
"""Each is kept as long as a network that shares its tensors."""


def load_adapted(files: PrmFiles, dtype: StoredDtype, place: torch.device, sharers: int) -> PreTrainedModel:
    """A base with its adapter: beside it for one of several `sharers`, else merged. Raises as `adapted`."""
    if sharers == 1 or files.adapter is None:
        return load_merged(files, dtype)
    lora.check(files.adapter)
    return adapted(load_shared(files.base, dtype, place, sharers), files, merge=False)


def load_shared(base: Path, dtype: StoredDtype, place: torch.device, sharers: int) -> PreTrainedModel:
    """A base whose tensors several `sharers` have in common, by type and device, each counting a part of its memory."""
    if sharers == 1:
        return load_base(base, dtype)
    with LOADING:
        key = base.resolve(), dtype, place
        if (first := _BASES.get(key)) is None:
            _BASES[key] = first = load_base(base, dtype)
            first.get_decoder().to(place)
        tensors = [*chain(first.parameters(), first.buffers())]
        for tensor in tensors:
            tensor.sharers = sharers
        made = copy.deepcopy(first, {id(tensor): tensor for tensor in tensors})
    vars(made.get_decoder())["first"] = first  # an attribute would make it a part of the network
    return made
