"""Probes: what a language model that nobody trained knows of a step, read from its hidden states and its surprise."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from unprm.engines.torch.readers import LOGITS, Reader, log_probs
from unprm.errors import ModelInvalid
from unprm.formats.family import Probe
from unprm.types import Encoded
from unprm.uncertainty import surprise

FILE = "head.safetensors"
"""A probe's weights, beside its configuration."""
EVEN = 1e-6
"""Nats that are added to each token's surprisal as a weight: a step that surprises nowhere is weighted evenly."""


class ProbeHead(nn.Module):
    """A value per token of its hidden states; a step's margin of the values' mean, weighted by surprisal, and of
    `measures` figures: what a base knows of errors shows at the tokens that surprise it (docs/lab/qwen.md)."""

    def __init__(self, inputs: int, measures: int) -> None:
        super().__init__()
        self.token = nn.Linear(inputs, 1, bias=False)
        self.measures = nn.Linear(measures, 1)

    @classmethod
    def read(cls, directory: Path, probe: Probe, hidden_size: int) -> Self:
        """The head in a probe's directory, in float32; raises `ModelInvalid` if it is missing or has other shapes."""
        path = directory / FILE
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise ModelInvalid(f"{path} can't be read as a probe's weights: {error}") from error
        head = cls(len(probe.layers) * hidden_size, len(probe.measures))
        found, expected = (
            {name: tuple(tensor.shape) for name, tensor in of.items()} for of in (tensors, head.state_dict())
        )
        if found != expected:
            raise ModelInvalid(f"{path} has tensors of the shapes {found}, expected {expected}")
        head.load_state_dict(tensors)
        return head

    def save(self, directory: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, directory / FILE)

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states of all layers, (n, inputs), of any float type -> (n, 1), float32."""
        made: torch.Tensor = self.token(hidden.float())
        return made

    def steps(self, pooled: torch.Tensor) -> torch.Tensor:
        """What `pooled` returns -> margins (steps,), float32."""
        made: torch.Tensor = pooled[:, 0] + self.measures(pooled[:, 1:])[:, 0]
        return made


def pooled(
    values: Sequence[float], logprobs: Sequence[float], ends: Sequence[int], measures: Sequence[str]
) -> torch.Tensor:
    """Mean value and `measures` of each step, (steps, 1 + measures). `ends`: the index after each step's last token."""
    rows = []
    for start, end in zip([0, *ends], ends, strict=False):
        mean = np.average(values[start:end], weights=EVEN - np.array(logprobs[start:end]))
        rows.append([mean, *surprise(logprobs[start:end], measures)])
    return torch.tensor(rows, dtype=torch.float32)


class ProbeReader(Reader):
    """A probe's `head` on `network`. A token's value is a list: the head's value, and the token's log-probability.
    `factor`: as in `log_probs`. Raises `ModelInvalid` if the network has fewer layers than the probe reads."""

    def __init__(
        self, network: PreTrainedModel, head: ProbeHead, probe: Probe, device: torch.device, factor: float = 1.0
    ) -> None:
        layers = int(network.config.get_text_config().num_hidden_layers)
        if max(probe.layers) > layers:
            raise ModelInvalid(
                f"the probe reads layer {max(probe.layers)}, {network.config.name_or_path} has {layers} layers"
            )
        head = head.eval().requires_grad_(False)
        self._steps = deepcopy(head).cpu()  # a few numbers for each step, which a GPU would be waited for
        self.network, self._head = network.to(device).eval(), head.to(device)
        self.layers, self._measures, self._factor = probe.layers, probe.measures, factor
        self.sources = {0: [None if layer == layers else layer for layer in probe.layers], 1: [None]}
        super().__init__([network.get_decoder()], [network, self._head])

    def indices(self, item: Encoded) -> Sequence[int]:
        return range(item.response, item.positions[-1] + 1)

    def values(self, layers: Sequence[torch.Tensor]) -> torch.Tensor:
        """What the head makes of tokens' hidden states in each of `layers`, (n, hidden) -> (n, 1), float32."""
        parts = zip(*(states.split(LOGITS) for states in layers), strict=True)
        return torch.cat([self._head.tokens(torch.cat(part, 1)) for part in parts])

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """(n, 2): the head's value, and the log-probability."""
        *layers, before = hidden
        values = self.values(layers)
        output = self.network.get_output_embeddings()  # may have been replaced
        return torch.cat([values.double(), log_probs(output, before, tokens, self._factor)[:, None]], 1)

    def margins(self, item: Encoded, values: Sequence[Any]) -> list[Any]:
        """The head's margins of the steps: each ends at a position, the first begins with the response."""
        read, logprobs = zip(*values, strict=True)
        ends = [position - item.response + 1 for position in item.positions]
        made: list[Any] = self._steps.steps(pooled(read, logprobs, ends, self._measures)).tolist()
        return made
