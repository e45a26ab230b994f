"""Counts the memory of a training run before any weight is loaded.

A forward and a backward pass run on fake tensors, which have shapes but no data, and the bytes of live tensors are
added up. This works for every architecture, and includes what a formula would have to guess: what autograd keeps, what
is recomputed, and temporaries of the backward pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.types import Encoded

from .bytes_in_use import LiveBytes
from .collate import Example, micro_batches
from .heads import make_head
from .network import Network, base_dtype, computes_in_bf16, prepare
from .settings import TRAIN_PRESETS, TrainSettings, TuneName

MOST_TOKENS = 16_384
"""Maximum tokens of a pass: more would gain nothing."""
ENOUGH_TOKENS = 4_096
"""Tokens of a pass from which on larger passes gain less than gradient checkpointing costs."""
SPARE = 0.15
"""Share of the activation memory reserved for allocators and kernels."""
_ROUND = 256
_STEP_TOKENS = 32
"""Tokens per step (and so per tag) assumed in the count."""

_CAUSAL = "causal_sdpa"
"""Attention without a mask, as in the trainer's passes: with fake tensors transformers would make a mask, as it cannot
see from their positions that none is needed."""
AttentionInterface.register(_CAUSAL, sdpa_attention_forward)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that training takes in a process: `frozen` weights; `trained` weights, their gradients and AdamW's moments;
    `activations`: peak of everything else during a forward and backward pass."""

    frozen: int
    trained: int
    activations: int

    @property
    def needed(self) -> int:
        """Bytes that must be free, including `SPARE`."""
        return self.frozen + self.trained + round(self.activations / (1 - SPARE))

    def __str__(self) -> str:
        return ", ".join(f"{part.name} {_gb(getattr(self, part.name))}" for part in fields(self))


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a run takes of the `free` bytes, and the settings chosen for it."""

    footprint: Footprint
    free: int
    batch_tokens: int
    gradient_checkpointing: bool

    @property
    def scarce(self) -> bool:
        """Whether more than half of the free memory is needed."""
        return 2 * self.footprint.needed > self.free

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
    batch = settings.batch_size * longest
    most = max(longest, min(settings.batch_tokens or MOST_TOKENS, batch))
    least = {False: max(longest, min(ENOUGH_TOKENS, most)), True: longest}
    if settings.gradient_checkpointing is not None:
        least = {settings.gradient_checkpointing: longest}
    for checkpointing, few in least.items():
        tried, tokens = replace(settings, gradient_checkpointing=checkpointing), most
        found = footprint(config, tried, device, tokens, longest)
        if found.needed <= free or None not in (settings.batch_tokens, settings.gradient_checkpointing):
            return MemoryPlan(found, free, settings.batch_tokens or MOST_TOKENS, checkpointing)
        if settings.batch_tokens is None and few < most:
            tokens, large, found = few, found, footprint(config, tried, device, few, longest)
            if found.needed <= free:
                # linear interpolation never underestimates: a peak is a maximum of sums linear in the tokens
                share = (free - found.needed) / (large.needed - found.needed)
                tokens = max(few, int(few + share * (most - few)) // _ROUND * _ROUND)
                found = footprint(config, tried, device, tokens, longest)
                return MemoryPlan(found, free, tokens, checkpointing)
    advice = ["a device with more memory", "a smaller base", "no such long solutions"]
    if settings.batch_tokens and settings.batch_tokens > longest:
        advice.insert(0, "fewer batch_tokens")
    if not checkpointing:
        advice.insert(0, "gradient_checkpointing")
    if base_dtype(settings, device) == torch.float32 and not settings.bf16:
        advice.insert(0, "bf16")
    if settings.tune == "all":
        advice.insert(0, "tune lora")
    raise ModelInvalid(
        f"training {settings.base} needs {_gb(found.needed)} of memory ({found}, and {SPARE:.0%} to spare) with passes "
        f"of {tokens:,} tokens, {_with(checkpointing)} gradient checkpointing, but {_gb(free)} is free; what helps: "
        f"{', '.join(advice)}"
    )


def footprint(config: PreTrainedConfig, settings: TrainSettings, device: str, tokens: int, longest: int) -> Footprint:
    """Memory of training with passes of `tokens` tokens, padding included; other arguments as for `plan`."""
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=base_dtype(settings, device))
        model, in_bf16 = prepare(base, settings, device), computes_in_bf16(settings, device)
        network = Network(model, make_head(model, settings, Verdicts(0, 1), in_bf16))
    if base.config._attn_implementation == "sdpa":
        base.set_attn_implementation(_CAUSAL)
    trained = sum(parameter.nbytes for parameter in network.parameters() if parameter.requires_grad)
    frozen = sum(parameter.nbytes for parameter in network.parameters()) - trained
    texts = -(-tokens // longest)
    length = -(-tokens // texts)
    places = range((length - 1) % _STEP_TOKENS, length, _STEP_TOKENS)
    response = int(settings.head == "implicit")
    # nothing is shared
    examples = [
        Example(Encoded((text,) * length, tuple(places), response), (True,) * len(places)) for text in range(texts)
    ]
    if device == "cuda":
        for parent in network.modules():
            for name, module in parent.named_children():
                if isinstance(module, torch.nn.Dropout):
                    setattr(parent, name, _FusedDropout(module.p))
    with FakeTensorMode():
        # meta tensors would not reflect autocast or the attention kernel
        network._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # type: ignore[no-untyped-call]
        held = [*network.parameters(), *network.buffers()]
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
                held.append(parameter.grad)
        (micro,) = micro_batches(examples, texts * length, sharing=settings.share_prefixes)
        live = LiveBytes(held)
        with _Watch(live):
            network(micro, in_bf16).sum().backward()
    return Footprint(frozen, 4 * trained, live.peak)


class _Watch(TorchDispatchMode):
    """Counts the results of all operations."""

    def __init__(self, live: LiveBytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live = live

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._live.add(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


class _FusedDropout(torch.nn.Dropout):
    """Dropout as on a GPU, which keeps one byte per element for the backward pass; a CPU keeps a full element."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(input, self.p, self.training)[0]


def table(config: PreTrainedConfig, free: Sequence[int], longest: int, tune: TuneName = "lora") -> Table:
    """Memory and plans of the presets on GPUs with `free` bytes each. Arguments as for `plan`."""
    shown = Table(title=f"training on solutions of up to {longest:,} tokens")
    parts = ("frozen", "trained", "activations per token", "with checkpointing")
    for name in ("preset", *parts, *map(_gb, free)):
        shown.add_column(name, justify="left" if name == "preset" else "right")
    # without an adapter, the presets differ in nothing that takes memory
    for preset in ("paper", "default") if tune == "lora" else ("paper",):
        settings = TrainSettings("", (), Path(), bf16=True, tune=tune, **TRAIN_PRESETS[preset])
        plain, twice = (
            footprint(config, replace(settings, gradient_checkpointing=way), "cuda", MOST_TOKENS, longest)
            for way in (False, True)
        )
        per_token = [f"{usage.activations / MOST_TOKENS / 1e6:.2f} MB" for usage in (plain, twice)]
        plans = [_chosen(config, settings, size, longest) for size in free]
        shown.add_row(preset, _gb(plain.frozen), _gb(plain.trained), *per_token, *plans)
    return shown


def _chosen(config: PreTrainedConfig, settings: TrainSettings, free: int, longest: int) -> str:
    try:
        made = plan(config, settings, "cuda", free, longest)
    except ModelInvalid:
        return "too little"
    return f"{made.batch_tokens:,} tokens{', checkpointing' * made.gradient_checkpointing}"


def _with(checkpointing: bool) -> str:
    return "with" if checkpointing else "without"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"
