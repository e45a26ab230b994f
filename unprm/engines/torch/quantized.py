"""Linear layers that take less memory than in float32.

In eight bits the weights are rounded once, the activations at every call. Each row of either has its own scale, so that
the output for a token does not depend on the others in the batch. A processor without instructions for such numbers
multiplies them many times slower than float32: there a layer's weights are converted to float32 when it runs.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

Eight = Literal["int8", "float8"]
_LARGEST = {"int8": 127.0, "float8": float(torch.finfo(torch.float8_e4m3fn).max)}
_NUMBERS = {"int8": torch.int8, "float8": torch.float8_e4m3fn}


def computes_in_few_bits(device: torch.device) -> bool:
    """Whether 8- and 16-bit products are as fast on the device as float32: on GPUs, and on CPUs with AVX-512."""
    return device.type != "cpu" or torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class WidenedLinear(nn.Module):
    """Computes `linear`, whose weights are in 16 bits and not trained, with products and sums in float32. Its results
    are in `numbers`, or in the type of the rows."""

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


class EightBitLinear(nn.Module):
    """Computes `linear` in `int8` or `float8` (e4m3): faster on processors with instructions for it, VNNI or AMX for
    the former, GPUs since Ada and Hopper for the latter."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, linear: nn.Linear, numbers: Eight) -> None:
        super().__init__()
        self._numbers = numbers
        self.widened = not computes_in_few_bits(linear.weight.device)
        weight, scale = _rounded(linear.weight.detach(), numbers)
        # column-major, as the products take it
        self.register_buffer("weight", weight.contiguous().t())
        self.register_buffer("scale", scale.t().contiguous())
        self.bias = linear.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, inputs), of any float type -> (…, outputs), the same."""
        flat = rows.flatten(0, -2)
        numbers, scale = _rounded(flat, self._numbers)
        weight, weight_scale = self.weight, self.scale
        if self.widened:
            made = functional.linear(numbers.float(), weight.t().float()).mul_(scale).mul_(weight_scale).to(rows.dtype)
        elif self._numbers == "int8":
            made = torch._int_mm(numbers, weight).float().mul_(scale).mul_(weight_scale).to(rows.dtype)
        else:
            made = torch._scaled_mm(numbers, weight, scale, weight_scale, out_dtype=rows.dtype)
        if self.bias is not None:
            made += self.bias
        return made.view(*rows.shape[:-1], -1)


def _rounded(rows: torch.Tensor, numbers: Eight) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (n, width), of any float type -> in eight bits, (n, width), and the scale to multiply each by, (n, 1),
    float32.

    In bfloat16 the largest number of a row, divided by its scale, might come out as 128, which int8 turns into −128.
    """
    scale = rows.abs().amax(1, keepdim=True).float().div_(_LARGEST[numbers]).clamp_min_(torch.finfo(torch.float32).tiny)
    made = rows / scale
    return (made.round_() if numbers == "int8" else made).to(_NUMBERS[numbers]), scale


def quantize(network: PreTrainedModel, numbers: Eight, others: torch.dtype) -> None:
    """Converts all linear layers of a decoder to eight bits, `numbers`, and its embeddings, norms and biases to
    `others`."""
    _replace(network, lambda linear: EightBitLinear(linear, numbers))
    for parameter in network.parameters():
        parameter.data = parameter.data.to(others)


def widen(network: nn.Module) -> None:
    """Makes 16-bit linear layers compute in float32 on a processor without fast 16-bit products."""
    if any(p.dtype.itemsize == 2 and not computes_in_few_bits(p.device) for p in network.parameters()):
        widen_all(network)


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
