"""Heads: from the last hidden state at scored positions to margins, whose sigmoid is the score.

Logits over the whole vocabulary are never computed, and heads of other families are built from their tensors, without
their code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from unprm.errors import ModelInvalid
from unprm.formats.family import Ensemble, Head, Outcome, Verdicts

LOGIT_SETTINGS = ("logits_scaling", "logit_scale", "lm_head_multiplier", "final_logit_softcapping")
"""What transformers' configurations call factors, divisors and caps of logits; 1 or None: none."""
_FAR = 1e3
"""Size of a margin at which any cap of logits shows."""
_LINEAR = 1e-4
"""Difference, relative to `_FAR`, up to which logits are a linear function of the hidden state."""


class VerdictHead(nn.Module):
    """The difference of two tokens' logits, by their `rows` of the output layer, times `factor`, plus `bias`."""

    def __init__(self, rows: torch.Tensor, verdicts: Verdicts, factor: float = 1.0, bias: float = 0.0) -> None:
        super().__init__()
        if max(verdicts.positive, verdicts.negative) >= len(rows):
            raise ModelInvalid(
                f"the tokenizer's verdicts have ids {verdicts.positive} and {verdicts.negative}, the model has "
                f"{len(rows)} output rows: the tokenizer belongs to another model"
            )
        direction = rows[verdicts.positive].detach().float() - rows[verdicts.negative].detach().float()
        self.direction = nn.Parameter(direction * factor, requires_grad=False)
        self._bias = bias

    @classmethod
    def from_network(cls, network: PreTrainedModel, verdicts: Verdicts) -> Self:
        """The head of a model. Raises `ModelInvalid` if logits aren't linear in the state, unless `rows_alone`."""
        rows = network.get_output_embeddings().weight
        head = cls(rows, verdicts)
        return head if verdicts.rows_alone else cls(rows, verdicts, *margin_of(network, verdicts))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (n, hidden), of any type -> margins (n,), float32."""
        return hidden.float() @ self.direction + self._bias


class LayersHead(nn.Module):
    """Linear layers with ReLU between, in float32. One output is the margin; of two, the second minus the first."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @property
    def bias(self) -> float:
        """The last layer's bias, if it has one output."""
        bias = self.get_parameter(f"layers.{len(self.layers) - 1}.bias")
        return float(bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (n, hidden), of any type -> margins (n,), float32."""
        first, *others = self.layers
        made = first(hidden.float())
        for layer in others:
            made = layer(torch.relu(made))
        return margins(made)


class EnsembleHead(nn.Module):
    """Heads of linear layers with ReLU between, in float32; the margin's sigmoid is the mean of theirs. `weights`:
    (heads, inputs, outputs) per layer, the last with one output; `biases`: (heads, outputs)."""

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


@torch.no_grad()
def margin_of(network: PreTrainedModel, verdicts: Verdicts) -> tuple[float, float]:
    """The factor and the addend that turn the difference of two tokens' rows of the output layer into that of their
    logits.

    Measured on the model's own logits for made-up hidden states of common and of extreme sizes. Raises `ModelInvalid`
    if logits are not linear, as where they are capped.
    """
    output, decoder = network.get_output_embeddings(), network.get_decoder()
    places = [verdicts.positive, verdicts.negative]
    weight, bias = output.weight, getattr(output, "bias", None)
    rows = nn.Linear(weight.shape[1], 2, bias is not None, device=weight.device, dtype=torch.float64)
    rows.weight.copy_(weight[places])
    if bias is not None:
        rows.bias.copy_(bias[places])
    difference = rows.weight[0] - rows.weight[1]
    sizes = torch.tensor([0.0, _FAR, -_FAR, 1.0, _FAR / 2], dtype=torch.float64, device=difference.device)
    states = torch.outer(sizes, difference / difference.square().sum())
    hook = decoder.register_forward_hook(lambda *call: _with_states(call[-1], states[None]))
    try:
        network.set_output_embeddings(rows)
        logits = network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=decoder.device), use_cache=False).logits
    finally:
        hook.remove()
        network.set_output_embeddings(output)
    found = (logits[0, :, 0] - logits[0, :, 1]).double() if logits.shape[-1] == 2 else torch.full_like(sizes, torch.nan)
    addend, factor = found[0], (found[1] - found[0]) / _FAR
    if not (found - (factor * sizes + addend)).abs().max() <= _LINEAR * _FAR * factor.abs():
        raise ModelInvalid(
            f"{network.config.name_or_path} ({network.config.model_type}) caps its logits, or is otherwise not linear "
            "in its last hidden states, so unprm can't score with it: use another base"
        )
    return factor.item(), addend.item()


def check_unscaled(network: PreTrainedModel, tokens: Verdicts) -> None:
    """Raises `ModelInvalid` if a model's logits are not those of its output layer, by the difference of two tokens'."""
    factor, _ = margin_of(network, tokens)
    if abs(factor - 1) > _LINEAR:
        raise ModelInvalid(
            f"the logits of {network.config.name_or_path} ({network.config.model_type}) are {factor:.4g} times those "
            "of its output layer: likelihood ratios are not read from such a model"
        )


def changed_logits(config: Mapping[str, Any]) -> str | None:
    """What in a model's configuration changes the logits of its output layer, if anything."""
    return next((name for name in LOGIT_SETTINGS if config.get(name) not in (None, 1)), None)


def _with_states(output: Any, states: torch.Tensor) -> Any:
    if isinstance(output, tuple):
        return (states, *output[1:])
    output["last_hidden_state"] = states
    return output


def margins(outputs: torch.Tensor) -> torch.Tensor:
    """Margins from `outputs`, (n,), (n, 1) or (n, 2) -> (n,): the one, or the second minus the first."""
    return outputs[:, 1] - outputs[:, 0] if outputs.shape[1:] == (2,) else outputs.flatten()


def read_head(directory: Path, readout: Head | Ensemble | Outcome, hidden_size: int) -> nn.Module:
    """The head in a checkpoint's directory, (n, `hidden_size`) -> (n,). Raises `ModelInvalid` if its tensors don't
    fit."""
    match readout:
        case Head():
            return read_layers(directory, readout, hidden_size)
        case Ensemble():
            return _ensemble(directory, readout, hidden_size)
        case Outcome():
            return _outcome(directory, readout, hidden_size)


def read_layers(directory: Path, head: Head, hidden_size: int) -> LayersHead:
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
    if width > 2:
        raise ModelInvalid(f"{directory}: {head.layers[-1]} has {width} outputs, expected one value or two classes")
    return LayersHead(layers)


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


def tensor_names(directory: Path) -> set[str]:
    names = set[str]()
    for path in directory.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def _tensor(directory: Path, name: str) -> torch.Tensor:
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118 (it is no mapping)
                tensor: torch.Tensor = file.get_tensor(name)
                return tensor
    raise ModelInvalid(f"{directory} has no tensor {name}, the head of this family: the model belongs to another one")
