"""Heads: from the last hidden state at scored positions to margins, whose sigmoid is the score.

The logits over the whole vocabulary are never computed, and no code that comes with a model is run: heads of other
families are built here from their tensors.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional

from unprm.errors import ModelInvalid
from unprm.formats.family import Ensemble, Head, Outcome, Verdicts


class VerdictHead(nn.Module):
    """The difference of two tokens' logits, in float32: of two of the output layer's `rows`, (vocabulary, hidden),
    divided as `verdicts` say. Raises `ModelInvalid` if it has no such rows."""

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
        """Hidden states (n, hidden), of any type -> margins (n,), float32."""
        return hidden.float() @ self.direction


class LayersHead(nn.Module):
    """Linear layers with ReLU between them, in float32. Their one output is the margin; of two, the second minus the
    first. `distribution`: return both instead, log β and log α of a Beta distribution."""

    def __init__(self, layers: list[nn.Linear], distribution: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._distribution = distribution

    @property
    def bias(self) -> float:
        """The last layer's bias, if it has one output."""
        bias = self.get_parameter(f"layers.{len(self.layers) - 1}.bias")
        return float(bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (n, hidden), of any type -> margins (n,), or both outputs (n, 2), float32."""
        first, *others = self.layers
        made = first(hidden.float())
        for layer in others:
            made = layer(torch.relu(made))
        return made if self._distribution else margins(made)


class EnsembleHead(nn.Module):
    """Heads of linear layers with ReLU between them, in float32: the margin's sigmoid is the mean of theirs.

    `weights`: of each layer, (heads, inputs, outputs), the last with one output; `biases`: (heads, outputs).
    """

    def __init__(self, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights, self.biases = (
            nn.ParameterList(nn.Parameter(tensor.float(), requires_grad=False) for tensor in tensors)
            for tensors in (weights, biases)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (n, hidden), of any type -> margins (n,), float32."""
        made = hidden.float()
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            made = (torch.relu(made) if number else made) @ weight + bias[:, None]
        # the logarithm of the mean against that of one minus the mean, exact where they are close to 0 or 1
        each = made[..., 0]
        return functional.logsigmoid(each).logsumexp(0) - functional.logsigmoid(-each).logsumexp(0)


def margins(outputs: torch.Tensor) -> torch.Tensor:
    """Margins from `outputs`, (n,), (n, 1) or (n, 2), of any float type -> (n,), the same: the one, or the second minus
    the first."""
    return outputs[:, 1] - outputs[:, 0] if outputs.shape[1:] == (2,) else outputs.flatten()


def read_head(directory: Path, readout: Head | Ensemble | Outcome, hidden_size: int) -> nn.Module:
    """The head in a checkpoint's directory, from (n, `hidden_size`) to (n,), or (n, 2) for a distribution; raises
    `ModelInvalid` if a tensor is missing or has another shape."""
    match readout:
        case Head():
            return read_layers(directory, readout, hidden_size)
        case Ensemble():
            return _ensemble(directory, readout, hidden_size)
        case Outcome():
            return _outcome(directory, readout, hidden_size)


def read_layers(directory: Path, head: Head, hidden_size: int) -> LayersHead:
    """As `read_head`, for linear layers."""
    layers = []
    width = hidden_size
    for name in head.layers:
        weight, bias = _layer(directory, name)
        if weight.shape[1] != width or len(bias) != len(weight):
            raise ModelInvalid(
                f"{directory}: {name} is {tuple(weight.shape)} with a bias of {len(bias)}, expected rows of {width}"
            )
        layer = nn.Linear(width, len(weight))
        layer.load_state_dict({"weight": weight.float(), "bias": bias.float()})
        layers.append(layer.requires_grad_(False))
        width = len(weight)
    if width > 2 or (head.distribution and width != 2):
        expected = "two" if head.distribution else "one value or two classes"
        raise ModelInvalid(f"{directory}: {head.layers[-1]} has {width} outputs, expected {expected}")
    return LayersHead(layers, head.distribution)


def _ensemble(directory: Path, ensemble: Ensemble, hidden_size: int) -> EnsembleHead:
    layers = [_layer(directory, name) for name in ensemble.layers]
    heads = len(layers[0][0])
    width = hidden_size
    for name, (weight, bias) in zip(ensemble.layers, layers, strict=True):
        if weight.ndim != 3 or weight.shape[:2] != (heads, width) or bias.shape != (heads, weight.shape[2]):
            raise ModelInvalid(
                f"{directory}: {name} is {tuple(weight.shape)} with biases {tuple(bias.shape)}, expected {heads} heads "
                f"of {width} inputs"
            )
        width = weight.shape[2]
    if width != 1:
        raise ModelInvalid(f"{directory}: {ensemble.layers[-1]} has {width} outputs per head, expected one")
    return EnsembleHead([weight for weight, _ in layers], [bias for _, bias in layers])


def _outcome(directory: Path, outcome: Outcome, hidden_size: int) -> LayersHead:
    weight = _tensor(directory, f"{outcome.layer}.weight")
    if weight.shape != (1, hidden_size):
        raise ModelInvalid(f"{directory}: {outcome.layer} is {tuple(weight.shape)}, expected one row of {hidden_size}")
    layer = nn.Linear(hidden_size, 1, bias=False)
    layer.load_state_dict({"weight": weight.float()})
    return LayersHead([layer.requires_grad_(False)])


def _layer(directory: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _tensor(directory, f"{name}.weight"), _tensor(directory, f"{name}.bias")


def _tensor(directory: Path, name: str) -> torch.Tensor:
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118 (it is no mapping)
                tensor: torch.Tensor = file.get_tensor(name)
                return tensor
    raise ModelInvalid(f"{directory} has no tensor {name}, the head of this family: the model belongs to another one")
