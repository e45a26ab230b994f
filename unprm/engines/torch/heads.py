"""Heads: from the last hidden state at scored positions to margins, whose sigmoid is the score.

The logits over the whole vocabulary are never computed, and no code that comes with a model is run: heads of other
families are built here from their tensors.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from unprm.errors import ModelInvalid
from unprm.formats.family import Head, Verdicts


class VerdictHead(nn.Module):
    """The difference of two tokens' logits, in fp32: of two rows of the output layer, divided as `verdicts` say."""

    def __init__(self, rows: torch.Tensor, verdicts: Verdicts) -> None:
        super().__init__()
        if max(verdicts.positive, verdicts.negative) >= len(rows):
            raise ModelInvalid(
                f"the tokenizer's verdicts have ids {verdicts.positive} and {verdicts.negative}, the model has "
                f"{len(rows)} output rows: the tokenizer belongs to another model"
            )
        direction = rows[verdicts.positive].detach().float() - rows[verdicts.negative].detach().float()
        self.direction = nn.Parameter(direction / verdicts.divisor, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n,)"""
        return hidden.float() @ self.direction


class LayersHead(nn.Module):
    """Linear layers with ReLU between them, in fp32: one output is the margin; of two, the second minus the first."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @property
    def bias(self) -> float:
        """The last layer's bias, if it has one output."""
        bias = self.get_parameter(f"layers.{len(self.layers) - 1}.bias")
        return float(bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n,)"""
        first, *others = self.layers
        made = first(hidden.float())
        for layer in others:
            made = layer(torch.relu(made))
        return margins(made)


def margins(outputs: torch.Tensor) -> torch.Tensor:
    """Margins from one or two outputs, (n, outputs) -> (n,): the one, or the second minus the first."""
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]


def read_head(directory: Path, head: Head, hidden_size: int) -> LayersHead:
    """The head in a checkpoint; raises `ModelInvalid` if a tensor is missing or has the wrong shape."""
    layers = []
    width = hidden_size
    for name in head.layers:
        weight, bias = (_tensor(directory, f"{name}.{part}") for part in ("weight", "bias"))
        if weight.shape[1] != width or len(bias) != len(weight):
            raise ModelInvalid(
                f"{directory}: {name} is {tuple(weight.shape)} with a bias of {len(bias)}, expected rows of {width}"
            )
        layer = nn.Linear(width, len(weight))
        layer.load_state_dict({"weight": weight.float(), "bias": bias.float()})
        layers.append(layer.requires_grad_(False))
        width = len(weight)
    if width > 2:
        raise ModelInvalid(f"{directory}: {head.layers[-1]} has {width} outputs, expected one value or two classes")
    return LayersHead(layers)


def _tensor(directory: Path, name: str) -> torch.Tensor:
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118 (it is no mapping)
                tensor: torch.Tensor = file.get_tensor(name)
                return tensor
    raise ModelInvalid(f"{directory} has no tensor {name}, the head of this family: the model belongs to another one")
