"""Decoder layers compiled: norms, rotary embeddings, activations and sums become a few kernels between matrix products.

Layers of the same shape share one graph for passes of any size, in which attention is opaque to the compiler. A layer
that can't be compiled runs as it is written.
"""

import logging
import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from torch import nn
from transformers import PreTrainedModel

from unprm.engines.torch.attention import CALL, KeyValues
from unprm.engines.torch.segments import Segments

logger = logging.getLogger(__name__)

KERNELS = "unprm-kernels"
"""Name of the directory, beside the hub's, in which compiled kernels are kept, unless the environment names another."""
GRAPHS = 128
"""Graphs of a class of layers in a process: one per shape, number type and window of all models ever loaded."""
LINE = 200
"""Maximum characters of a compiler's message in the log."""


class CompiledLayers:
    """Compiles the layers of a network with tree attention in its next pass. `backend`: of `torch.compile`."""

    def __init__(self, network: PreTrainedModel, backend: str | Callable[..., Any] = "inductor") -> None:
        self.failed = False
        """Whether the layers are run as they are written."""
        self._backend = backend
        self._forward: dict[type[nn.Module], Callable[..., Any]] = {}
        # compiled kernels are code: PyTorch's default is a place in /tmp, which others could have filled
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(HF_HOME) / KERNELS))
        for place, layer in enumerate(getattr(network, "layers", ())):
            layer.forward = partial(self._run, weakref.ref(layer), place)  # a cycle would keep the weights

    def _run(
        self,
        found: Callable[[], Any],
        place: int,
        hidden: torch.Tensor,
        *args: Any,
        segments: Segments | None = None,
        kept: KeyValues | None = None,
        **kwargs: Any,
    ) -> Any:
        """The forward pass of the layer that `found` gives; `hidden`: (1, tokens, width)."""
        layer, tokens = found(), hidden.shape[1]
        # a single token would take a graph of its own; a plain pass has no segments
        if tokens > 1 and not self.failed and segments is not None and kept is not None:
            _mark((hidden, *args, *kwargs.values()), tokens)
            CALL.now = segments, kept.layers[place]
            try:
                return self._compiled(type(layer))(layer, hidden, *args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the compiler's are of many kinds; any other one is raised again below
                if hidden.is_cuda and torch.cuda.is_current_stream_capturing():
                    raise
                self.failed = True
                reason = " ".join(str(error).split())[:LINE]
                logger.warning("layers are not compiled, passes are slower: %s: %s", type(error).__name__, reason)
            finally:
                CALL.now = None
        more = {} if segments is None else {"segments": segments, "kept": kept}
        return type(layer).forward(layer, hidden, *args, **more, **kwargs)

    def _compiled(self, kind: type[nn.Module]) -> Callable[..., Any]:
        """The forward pass of layers of a class: static, but for the number of tokens, which each call marks."""
        if kind not in self._forward:
            torch._dynamo.config.recompile_limit = GRAPHS  # of this thread alone since PyTorch 2.13
            # in 16 bits, rounds where the layers do: else the self-test's difference is twice as large
            options: Any = {"emulate_precision_casts": True} if self._backend == "inductor" else None
            self._forward[kind] = torch.compile(
                kind.forward, fullgraph=True, dynamic=False, backend=self._backend, options=options
            )
        return self._forward[kind]


def _mark(arguments: Iterable[object], tokens: int) -> None:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            if argument.dim() > 1 and argument.shape[1] == tokens:
                torch._dynamo.mark_dynamic(argument, 1)
        elif isinstance(argument, tuple):
            _mark(argument, tokens)
