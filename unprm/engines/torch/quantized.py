"""Linear layers that take less memory than in float32.

In int8, weights are rounded once and activations at every call, each row with a scale of its own, so that a token's
output does not depend on its batch. On processors that multiply 16 or 8 bits slowly, weights are widened to float32 at
every call.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel


class WidenedLinear(nn.Module):
    """`linear` of 16 bits, not trained, with products in float32. Results are in `numbers`, or in the rows' type."""

    def __init__(self, linear: nn.Linear, numbers: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight, self.bias, self._numbers = linear.weight, linear.bias, numbers

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, inputs), of any float type -> (…, outputs)."""
        made: torch.Tensor = _WidenedProduct.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return made.to(self._numbers or rows.dtype)


class _WidenedProduct(torch.autograd.Function):
    """Widens the weights again in the backward pass, so that no copy of them in float32 is kept until then."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = rows.dtype
        return functional.linear(rows.float(), weight.float(), None if bias is None else bias.float())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return (gradients[0] @ weight.float()).to(ctx.dtype), None, None


class Int8Linear(nn.Module):
    """`linear` in int8. `widened`: the same products in float32. `rounds`: whether activations are rounded, too."""

    weight: torch.Tensor
    scale: torch.Tensor
    rounds = True

    def __init__(self, linear: nn.Linear, widened: bool) -> None:
        super().__init__()
        self.widened = widened
        weight, scale = _rounded(linear.weight.detach())
        # column-major, as the product takes it
        self.register_buffer("weight", weight.contiguous().t())
        self.register_buffer("scale", scale.t().contiguous())
        self.bias = linear.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, inputs), of any float type -> (…, outputs), the same."""
        if not self.rounds:
            return functional.linear(rows, (self.weight * self.scale).t().to(rows.dtype), self.bias)
        numbers, scale = _rounded(rows.flatten(0, -2))
        if self.widened:
            sums = functional.linear(numbers.float(), self.weight.t().float())
        else:
            sums = torch._int_mm(numbers, self.weight).float()
        made = sums.mul_(scale).mul_(self.scale).to(rows.dtype)
        if self.bias is not None:
            made += self.bias
        return made.view(*rows.shape[:-1], -1)


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (n, width) -> in int8, (n, width), and the scale of each, (n, 1), in float32: bfloat16 might round 127 to
    128."""
    scale = rows.abs().amax(1, keepdim=True).float().div_(127.0).clamp_min_(torch.finfo(torch.float32).tiny)
    return (rows / scale).round_().to(torch.int8), scale


def quantize(network: PreTrainedModel, widened: bool) -> None:
    """Converts a decoder's linear layers to int8, and everything else to float32. `widened`: as in `Int8Linear`."""
    _replace(network, lambda linear: Int8Linear(linear, widened))
    for parameter in network.parameters():
        parameter.data = parameter.data.float()


def widen_all(network: nn.Module, numbers: torch.dtype | None = None) -> None:
    """Makes 16-bit linear layers compute in float32; their results are in `numbers`, or in the type of the inputs."""
    _replace(network, lambda linear: WidenedLinear(linear, numbers) if linear.weight.dtype.itemsize == 2 else linear)


def _replace(network: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> None:
    """Replaces one layer after the other, so that two copies of all weights are never held."""
    places = [
        (parent, name)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    for parent, name in places:
        linear = parent.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        setattr(parent, name, make(linear))
