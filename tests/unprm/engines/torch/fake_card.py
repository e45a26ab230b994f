"""A simulated GPU: operations compute nothing, but their devices, shapes and types are checked, and what they would
compute, move and hold is counted. Uses PyTorch's fake tensors, with a device type of its own.

Registering the device type changes the whole process, so run this in a separate one.
"""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.varlen import _varlen_attn, varlen_attn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend
from torch.utils.flop_counter import flop_registry
from transformers import PreTrainedModel

from unprm.engines.torch import segments, varlen
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.passes import Pass
from unprm.engines.torch.readers import AtPositions, Reader
from unprm.engines.torch.segments import Segment
from unprm.types import ModelDescription

NAME = "fakecard"
_HALF = (torch.float16, torch.bfloat16)
_MOVES_ROWS = {torch.ops.aten.index.Tensor, torch.ops.aten.embedding.default, torch.ops.aten.index_copy_.default}
"""Operations that read or write only some rows of a large tensor: as many as their result or last argument has."""
_ATTENTION = _varlen_attn._opoverload


@dataclass(frozen=True, slots=True)
class Operation:
    """Cost of one operation: multiplications plus additions (`flops`), and bytes read and written (`moved`)."""

    flops: int
    moved: int


@dataclass(slots=True)
class Count:
    """Operations that were run, and the number of tokens."""

    operations: list[Operation] = field(default_factory=list)
    tokens: int = 0

    @property
    def flops(self) -> int:
        """Multiplications and additions of all operations."""
        return sum(operation.flops for operation in self.operations)


class LiveBytes:
    """Bytes of the counted tensors: `now`, and their `peak` so far. Tensors that share memory count once."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Counts these tensors from now on, until their memory is freed."""
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if storage not in self._known:
                self._known.add(storage)
                self._change(storage.nbytes())
                weakref.finalize(storage, self._change, -storage.nbytes())

    def _change(self, size: int) -> None:
        self.now += size
        self.peak = max(self.peak, self.now)


class FakeCard(TorchDispatchMode):
    """Counts the operations and, in `live`, the bytes on the card, and raises `AssertionError` where a layer would wait
    for the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = Count()
        self.live = LiveBytes()
        self._in_layer = False
        self._spans: list[Segment] = []
        self._unattended: list[Segment] = []

    def reset(self) -> None:
        """Resets the count, except the bytes held now."""
        self.count = Count()
        self.live.peak = self.live.now

    def begin(self, segments: Sequence[Segment]) -> None:
        """Begins a pass; `segments` are needed as only the host knows their lengths."""
        self._spans, self._unattended = list(segments), []
        self.count.tokens += sum(segment.length for segment in segments)

    def watch(self, network: PreTrainedModel) -> None:
        """Makes layers of this network fail if they would wait for the host."""
        for layer in network.layers:
            layer.register_forward_pre_hook(lambda *_: setattr(self, "_in_layer", True))
            layer.register_forward_hook(lambda *_: setattr(self, "_in_layer", False))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs an operation and counts it."""
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        made = func(*args, **kwargs)
        results = _tensors(made)
        if self._in_layer:
            self._check_devices(func, given, results)
        flops = 0
        if func is _ATTENTION:
            flops = self._attention(*args, **kwargs)
        elif func is torch.ops.aten.linear.default:
            flops = 2 * made.numel() * args[0].shape[-1]
        elif func.overloadpacket in flop_registry:
            flops = flop_registry[func.overloadpacket](*args, **kwargs, out_val=made)
        moved = 0
        if func in _MOVES_ROWS:
            moved = 2 * min(sum(tensor.nbytes for tensor in tensors) for tensors in (given[-1:], results))
        elif not func.is_view and func is not torch.ops.aten._unsafe_view.default:
            moved = sum(tensor.nbytes for tensor in (*given, *results))
        self.count.operations.append(Operation(flops, moved))
        self.live.add(tensor for tensor in results if tensor.device.type == NAME)
        return made

    def _check_devices(self, func: Any, given: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> None:
        places = {tensor.device.type for tensor in (*given, *results) if tensor.dim()}
        assert len(places) <= 1, f"a layer waits for the host: {func} has tensors on {' and '.join(sorted(places))}"

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        first_queries: torch.Tensor,
        first_keys: torch.Tensor,
        longest_query: int,
        longest_key: int,
        is_causal: bool,
        scale: float,
        window_size: Sequence[int],
        *others: Any,
    ) -> int:
        """Checks FlashAttention's requirements, and counts its operations: two products for each pair of tokens."""
        for tensor in (query, key, value, first_queries, first_keys):
            assert tensor.is_contiguous(), f"FlashAttention takes contiguous tensors, not strides {tensor.stride()}"
        for tensor in (query, key, value):
            assert tensor.dtype in _HALF, f"FlashAttention does not compute in {tensor.dtype}"
        for tensor in (first_queries, first_keys):
            assert tensor.dtype is torch.int32, f"FlashAttention takes int32, not {tensor.dtype}"
        segments, tokens = [], len(query)
        while tokens:
            self._unattended = self._unattended or self._spans.copy()  # of the next layer
            segments.append(self._unattended.pop(0))
            tokens -= segments[-1].length
        assert longest_query == max(segment.length for segment in segments)
        assert longest_key == max(len(segment.slots) for segment in segments)
        assert len(key) == len(value) == sum(len(segment.slots) for segment in segments)
        window = math.inf if window_size[0] < 0 else window_size[0] + 1
        pairs = sum(
            sum(min(seen + 1, window) for seen in range(len(segment.slots) - segment.length, len(segment.slots)))
            for segment in segments
        )
        return 4 * query.shape[1] * query.shape[2] * int(pairs)


def _tensors(arguments: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


@cache
def _register() -> None:
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Absent())


@contextmanager
def fake_card(function: varlen.Varlen = varlen_attn) -> Iterator[FakeCard]:
    """Within this block, tensors are fake and on the card. `function` is PyTorch's `varlen_attn`, or what an older one
    has."""
    _register()
    found = varlen.fitted(function)
    with (
        patch.object(varlen, "installed", lambda: found),
        patch.object(segments, "has_flash", lambda device, dtype: dtype in _HALF and found is not None),
        FakeTensorMode(allow_non_fake_inputs=True),
        FakeCard() as card,
        torch.device(NAME),
    ):
        yield card


class _Absent(_DummyBackendModule):
    def is_available(self) -> bool:
        """False, so that PyTorch initialises nothing."""
        return False


class _Unread(AtPositions):
    """Reader whose values are meaningless."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.decoders, self._head = [network], nn.Linear(network.config.hidden_size, 1)
        self.modules = [network, self._head]

    def read(self, hidden: Sequence[torch.Tensor], tokens: torch.Tensor) -> Any:
        """One zero per token: fake tensors have no values."""
        assert self._head(hidden[0].float()).shape == (len(tokens), 1)
        values = SimpleNamespace(is_cuda=False, tolist=lambda: [0.0] * len(tokens))
        values.to = lambda *place, **how: values
        return values


class CardEngine(TorchEngine):
    """A `TorchEngine` on the card; its scores are meaningless."""

    def __init__(self, card: FakeCard, network: PreTrainedModel, pass_tokens: int, cache_bytes: int) -> None:
        window = network.config.max_position_embeddings
        about = ModelDescription(name="fake", family="", engine="torch", device=NAME, dtype="", max_tokens=window)
        super().__init__(_Unread(network), None, about, pass_tokens, cache_bytes)  # type: ignore[arg-type]
        card.watch(network)
        self._card = card

    def _read(self, work: Pass, reader: Reader) -> Callable[[], list[Any]]:
        self._card.begin(work.segments)
        return super()._read(work, reader)
