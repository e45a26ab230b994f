"""Linear layers in eight bits: the weights once, the activations at every call. Each row of either has a scale of its
own, so that what comes out for a token does not depend on the others in the batch."""

from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel

Eight = Literal["int8", "float8"]
_LARGEST = {"int8": 127.0, "float8": float(torch.finfo(torch.float8_e4m3fn).max)}
_NUMBERS = {"int8": torch.int8, "float8": torch.float8_e4m3fn}


class EightBitLinear(nn.Module):
    """Computes as `linear` does, in `int8` or `float8` (e4m3): faster where the processor has instructions for it, VNNI
    or AMX for the one, a GPU since Ada and Hopper for the other."""

    def __init__(self, linear: nn.Linear, numbers: Eight) -> None:
        super().__init__()
        self._numbers = numbers
        weight, scale = _rounded(linear.weight.detach(), numbers)
        # by columns, as the products take it
        self.register_buffer("weight", weight.contiguous().t())
        self.register_buffer("scale", scale.t().contiguous())
        self.bias = linear.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, inputs) -> (…, outputs)"""
        flat = rows.flatten(0, -2)
        numbers, scale = _rounded(flat, self._numbers)
        weight, weight_scale = self.get_buffer("weight"), self.get_buffer("scale")
        if self._numbers == "int8":
            made = torch._int_mm(numbers, weight).float().mul_(scale).mul_(weight_scale).to(rows.dtype)
        else:
            made = torch._scaled_mm(numbers, weight, scale, weight_scale, out_dtype=rows.dtype)
        if self.bias is not None:
            made += self.bias
        return made.view(*rows.shape[:-1], -1)


def _rounded(rows: torch.Tensor, numbers: Eight) -> tuple[torch.Tensor, torch.Tensor]:
    """In eight bits, (n, width), and what to multiply each row by, (n, 1), in float32.

    In bfloat16 the largest number of a row, divided by its scale, might come out as 128, which int8 makes −128.
    """
    scale = rows.abs().amax(1, keepdim=True).float().div_(_LARGEST[numbers]).clamp_min_(torch.finfo(torch.float32).tiny)
    made = rows / scale
    return (made.round_() if numbers == "int8" else made).to(_NUMBERS[numbers]), scale


def quantize(network: PreTrainedModel, numbers: Eight, others: torch.dtype) -> None:
    """Puts all linear layers of a decoder in eight bits, and its embeddings, norms and biases in the type `others`."""
    places = [
        (parent, name)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    for parent, name in places:  # one layer after the other, so that no two copies of all weights are held
        setattr(parent, name, EightBitLinear(parent.get_submodule(name), numbers))
    for parameter in network.parameters():
        parameter.data = parameter.data.to(others)
