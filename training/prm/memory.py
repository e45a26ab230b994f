"""Whether a training run fits the free memory, and how large its passes can be, before any weight is loaded.

A pass runs on fake tensors, which have shapes but no data, and the bytes of what autograd keeps of it are added up.
This works for every architecture, whatever is trained of it.
"""

import copy
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedConfig

from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.types import Encoded

from .attention import Kernels
from .collate import Example, micro_batches
from .heads import make_head
from .network import Compute, Network, prepare
from .train_settings import TrainSettings

MOST_TOKENS = 16_384
"""Maximum tokens of a pass: more would gain nothing."""
PASS_SECONDS = 10
"""About as long a pass may take on a CPU, so that a run can be watched."""
CORE_RATE = 40e9
"""Operations per second assumed of a CPU's thread: a product's multiplication and sum are two."""
ENOUGH_TOKENS = 4_096
"""Tokens of a pass from which on larger passes gain less than gradient checkpointing costs."""
SPARE = 0.15
"""Share of the activations' memory reserved for allocators and kernels."""
RESERVE = 0.05
"""Share of a GPU's free memory that no run takes: for what its libraries allocate later, and for fragments."""
_COUNTED, _STEP = 64, 32
"""Tokens of the smaller pass that is counted, and of each step."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that training takes in a process. `frozen`: weights. `trained`: weights with their gradients and AdamW's
    moments, once more the largest gradient, while it is added, and copies in bfloat16. `activations`: for each token
    of a pass. `operations`: multiplications and sums for each token, those for the gradients included."""

    frozen: int
    trained: int
    activations: int
    operations: int

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
class TrainingMemory:
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


def plan(
    config: PreTrainedConfig, settings: TrainSettings, compute: Compute, free: int, longest: int
) -> TrainingMemory:
    """Chooses `batch_tokens` and `gradient_checkpointing` where the settings leave them open.

    `config`: the base model's configuration; its weights are not needed. `free`: the device's free bytes; `longest`:
    tokens of the longest solution. Gradient checkpointing is chosen only if `ENOUGH_TOKENS` per pass, or the longest
    solution, do not fit otherwise. A pass is as large as fits, up to `MOST_TOKENS`, and on a CPU up to those that it
    computes in `PASS_SECONDS`; a longer solution is a pass of its own. Raises `ModelInvalid` if nothing fits; settings
    that leave nothing open are accepted without this check.
    """
    given = settings.gradient_checkpointing
    # a mask of shared prefixes grows with the square of the tokens
    masked = settings.share_prefixes and compute.kernels is None
    plain = footprint(config, settings, compute)
    most = MOST_TOKENS
    if compute.device == "cpu":
        most = min(most, max(1, round(PASS_SECONDS * CORE_RATE * torch.get_num_threads() / plain.operations)))
    wanted = settings.batch_tokens or most
    largest = max(longest, min(wanted, settings.batch_size * longest))
    if masked:
        plain = footprint(config, settings, compute, largest)
    usable = round(free * (1 - RESERVE)) if compute.device == "cuda" else free
    for checkpointing in (False, True) if given is None else (given,):
        needs = _twice(plain, config, compute) if checkpointing else plain
        enough = ENOUGH_TOKENS if given is None and not checkpointing else longest
        least = largest if settings.batch_tokens else max(longest, min(enough, largest))
        fitting = needs.tokens(usable)
        if fitting >= least or None not in (settings.batch_tokens, given):
            tokens = fitting if settings.batch_tokens is None and fitting < largest else wanted
            return TrainingMemory(needs, free, tokens, checkpointing)
    raise ModelInvalid(
        f"training {settings.base} needs {_gb(needs.needed(least))} of memory ({needs}, and {SPARE:.0%} to spare) with "
        f"passes of {least:,} tokens, {_with(checkpointing)} gradient checkpointing, but {_gb(usable)} is free; what "
        "can help: gradient checkpointing, fewer batch tokens, --bf16, an adapter in place of all weights, a smaller "
        "base"
    )


def footprint(config: PreTrainedConfig, settings: TrainSettings, compute: Compute, tokens: int = 0) -> Footprint:
    """Memory of training without gradient checkpointing, for passes of up to `tokens`, which only matters where shared
    prefixes take a mask; other arguments as for `plan`."""
    masked = settings.share_prefixes and compute.kernels is None
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=compute.base)
        model = prepare(base, replace(settings, gradient_checkpointing=False), compute)
        head = make_head(model, settings, Verdicts(0, 1))
        # of fake tensors, transformers would make a mask where a real pass has none
        network = Network(model, head, compute._replace(kernels=None if masked else _UNMASKED))
    if compute.device == "cuda":
        _drop_as_cuda(network)
    trained = [parameter.nbytes for parameter in network.parameters() if parameter.requires_grad]
    frozen = sum(parameter.nbytes for parameter in network.parameters()) - sum(trained)
    few, many = _COUNTED, max(tokens, 2 * _COUNTED)
    with FakeTensorMode():
        # meta tensors would not reflect autocast or the attention kernel
        network._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # type: ignore[no-untyped-call]
        saved, most = (_saved(network, settings, tokens) for tokens in (few, many))
    activations = (most - saved) / (many - few)
    fixed = max(0, saved - round(activations * few))
    layers = config.num_hidden_layers  # and a layer's gradients
    embedding = model.get_input_embeddings().weight.numel()
    multiplied = sum(p.numel() for p in network.parameters() if p.ndim > 1) - embedding
    # forward, for the gradients of the activations, and for those of the weights
    operations = 2 * multiplied * (3 if settings.tune == "all" else 2)
    return Footprint(
        frozen, 4 * sum(trained) + max(trained) + fixed, round(activations * (layers + 1) / layers), operations
    )


def _saved(network: Network, settings: TrainSettings, tokens: int) -> int:
    """Bytes that autograd keeps of a pass, beside the weights; the network has fake tensors."""
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(tensor.untyped_storage()._cdata, tensor)

    weights = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    text = Encoded((0,) * tokens, tuple(range(_STEP - 1, tokens, _STEP)))
    example = Example(text, (1.0,) * len(text.positions))
    packing = network.kernels is not None
    (micro,) = micro_batches([example], tokens, packing, settings.share_prefixes and not packing)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(micro)
    return sum(each.untyped_storage().nbytes() for place, each in kept.items() if place not in weights)


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **options: Any) -> torch.Tensor:
    """Keeps what any kernel keeps that makes no scores: arguments as for `Kernels.packed`, of one sequence."""
    query, key, value = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
    made = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=options["scale"], enable_gqa=True
    )
    return made[0].transpose(0, 1)


_UNMASKED = Kernels(_causal, _causal)


class _DroppedByCuda(torch.nn.Dropout):
    """Dropout that keeps a byte of each number, as on a GPU; on a CPU it keeps a number."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(inputs, self.p, True)[0]


def _drop_as_cuda(network: torch.nn.Module) -> None:
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Dropout) and child.p > 0:
                setattr(module, name, _DroppedByCuda(child.p))


def _twice(plain: Footprint, config: PreTrainedConfig, compute: Compute) -> Footprint:
    """With gradient checkpointing: the input of each layer, and one layer's activations with their gradients."""
    inputs = config.num_hidden_layers * config.hidden_size * compute.base.itemsize
    return replace(plain, activations=inputs + 2 * plain.activations // (config.num_hidden_layers + 1))


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a device; on a CPU at most what its container's limit leaves."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    import psutil  # on a GPU nobody needs it

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
