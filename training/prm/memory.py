"""Whether a training run fits the free memory, and how large its passes can be, before any weight is loaded.

A pass runs on fake tensors, which have shapes but no data, and the bytes of what autograd keeps of it are added up.
This works for every architecture, whatever is trained of it.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoModelForCausalLM, PreTrainedConfig

from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.types import Encoded

from .collate import Example, micro_batches
from .heads import make_head
from .network import Network, base_dtype, computes_in_bf16, prepare
from .settings import TrainSettings

MOST_TOKENS = 16_384
"""Maximum tokens of a pass: more would gain nothing."""
ENOUGH_TOKENS = 4_096
"""Tokens of a pass from which on larger passes gain less than gradient checkpointing costs."""
SPARE = 0.15
"""Share of the activations' memory reserved for allocators and kernels."""
_COUNTED, _STEP = 64, 32
"""Tokens of the smaller pass that is counted, and of each step."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that training takes in a process: `frozen` weights; `trained` weights, their gradients and AdamW's moments,
    the largest gradient once more, while it is added, and copies in bfloat16; and `activations`, for each token of a
    pass."""

    frozen: int
    trained: int
    activations: int

    def needed(self, tokens: int) -> int:
        """Bytes that must be free for passes of so many tokens, including `SPARE`."""
        return self.frozen + self.trained + round(self.activations * tokens / (1 - SPARE))

    def tokens(self, free: int) -> int:
        """Tokens of a pass for which so many bytes are enough."""
        return max(0, int((free - self.frozen - self.trained) * (1 - SPARE) / self.activations))

    def __str__(self) -> str:
        weights = f"frozen {_gb(self.frozen)}, trained {_gb(self.trained)}"
        return f"{weights}, activations {self.activations / 1e6:,.3g} MB a token"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a run takes of the `free` bytes, and the settings chosen for it."""

    footprint: Footprint
    free: int
    batch_tokens: int
    gradient_checkpointing: bool

    def __str__(self) -> str:
        return (
            f"memory: {_gb(self.free)} free; {self.footprint}, for passes of up to {self.batch_tokens:,} tokens "
            f"{_with(self.gradient_checkpointing)} gradient checkpointing"
        )


def plan(config: PreTrainedConfig, settings: TrainSettings, device: str, free: int, longest: int) -> MemoryPlan:
    """Chooses `batch_tokens` and `gradient_checkpointing` where the settings leave them open.

    `config`: the base model's configuration; its weights are not needed. `device`: "cpu" or "cuda"; `free`: its free
    bytes; `longest`: tokens of the longest solution. Gradient checkpointing is chosen only if `ENOUGH_TOKENS` per pass,
    or the longest solution, do not fit otherwise. A pass is as large as fits, up to `MOST_TOKENS`. Raises
    `ModelInvalid` if nothing fits; settings that leave nothing open are accepted without this check.
    """
    wanted, given = settings.batch_tokens or MOST_TOKENS, settings.gradient_checkpointing
    largest = max(longest, min(wanted, settings.batch_size * longest))
    # with shared prefixes each layer keeps a mask, (tokens, tokens)
    plain = footprint(config, settings, device, largest if settings.share_prefixes else 0)
    for checkpointing in (False, True) if given is None else (given,):
        found = _twice(plain, config, settings, device) if checkpointing else plain
        enough = ENOUGH_TOKENS if given is None and not checkpointing else longest
        least = largest if settings.batch_tokens else max(longest, min(enough, largest))
        fitting = found.tokens(free)
        if fitting >= least or None not in (settings.batch_tokens, given):
            tokens = fitting if settings.batch_tokens is None and fitting < largest else wanted
            return MemoryPlan(found, free, tokens, checkpointing)
    raise ModelInvalid(
        f"training {settings.base} needs {_gb(found.needed(least))} of memory ({found}, and {SPARE:.0%} to spare) with "
        f"passes of {least:,} tokens, {_with(checkpointing)} gradient checkpointing, but {_gb(free)} is free; what can "
        "help: gradient checkpointing, fewer batch tokens, --bf16, an adapter in place of all weights, a smaller base"
    )


def footprint(config: PreTrainedConfig, settings: TrainSettings, device: str, tokens: int = 0) -> Footprint:
    """Memory of training without gradient checkpointing, for passes of up to `tokens`, which only matters if prefixes
    are shared; other arguments as for `plan`."""
    if device == "cuda":  # a GPU keeps a byte of each number's dropout, a CPU a whole number
        settings = replace(settings, lora_dropout=0.0)
    in_bf16 = computes_in_bf16(settings, device)
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=base_dtype(settings, device))
        model = prepare(base, replace(settings, gradient_checkpointing=False), device)
        network = Network(model, make_head(model, settings, Verdicts(0, 1), in_bf16))
    trained = [parameter.nbytes for parameter in network.parameters() if parameter.requires_grad]
    frozen = sum(parameter.nbytes for parameter in network.parameters()) - sum(trained)
    few, many = _COUNTED, max(tokens, 2 * _COUNTED)
    with FakeTensorMode():
        # meta tensors would not reflect autocast or the attention kernel
        network._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # type: ignore[no-untyped-call]
        saved, most = (_saved(network, settings, in_bf16, tokens) for tokens in (few, many))
    activations = (most - saved) / (many - few)
    fixed = max(0, saved - round(activations * few))
    layers = config.num_hidden_layers  # and a layer's gradients
    return Footprint(frozen, 4 * sum(trained) + max(trained) + fixed, round(activations * (layers + 1) / layers))


def _saved(network: Network, settings: TrainSettings, in_bf16: bool, tokens: int) -> int:
    """Bytes that autograd keeps of a pass, beside the weights; the network has fake tensors."""
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(tensor.untyped_storage()._cdata, tensor)

    weights = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    text = Encoded((0,) * tokens, tuple(range(_STEP - 1, tokens, _STEP)), int(settings.head == "implicit"))
    example = Example(text, (1.0,) * len(text.positions))
    (micro,) = micro_batches([example], tokens, sharing=settings.share_prefixes)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(micro, in_bf16)
    return sum(each.untyped_storage().nbytes() for place, each in kept.items() if place not in weights)


def _twice(plain: Footprint, config: PreTrainedConfig, settings: TrainSettings, device: str) -> Footprint:
    """With gradient checkpointing: the input of each layer, and one layer's activations with their gradients."""
    inputs = config.num_hidden_layers * config.hidden_size * base_dtype(settings, device).itemsize
    return replace(plain, activations=inputs + 2 * plain.activations // (config.num_hidden_layers + 1))


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a device; on a CPU at most what its container's limit leaves."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, left_to_container())


def left_to_container(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes left by a container's memory limit (control groups, version 2); `sys.maxsize` without a limit."""
    try:
        limit, used = (int((cgroup / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (cgroup / "memory.stat").read_text("ascii").splitlines())
        return limit - used + int(counts["inactive_file"])  # cached files count as used, but can be evicted
    except (OSError, ValueError):  # no such file, or "max"
        return sys.maxsize


def _with(checkpointing: bool) -> str:
    return "with" if checkpointing else "without"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"
