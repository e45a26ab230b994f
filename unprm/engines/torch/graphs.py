"""Small passes on a GPU as CUDA graphs: launching a pass's kernels from Python would take longer than running them.

A pass takes the smallest graph with room for it, and fills the rest with tokens to which no other attends.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from unprm.engines.torch import segments
from unprm.engines.torch.passes import Pass
from unprm.engines.torch.segments import TOGETHER, Packed, Segments, sent

logger = logging.getLogger(__name__)

TOKENS = (128, 256, 384, 512, 768, 1024, 1536, 2048)
"""Tokens of the graphs: above, a GPU computes longer than Python launches."""
PLANNED = TOKENS[-1] * 9 // 8
"""Tokens whose activations take as much memory as the graphs, which use it one after the other."""
FEW, KEYS = 16, 8192
"""Maximum segments of a graph for few long segments, and the keys that they attend to."""
SHORT, SEEN = 128, 32
"""Maximum tokens of a segment of a graph for many short ones, and the keys for each token."""

Record = Callable[[Callable[[], object]], Callable[[], object]]
"""Runs a function, whose tensors keep their places, and returns what repeats its operations."""


class Size(NamedTuple):
    """What a graph has room for: `tokens` in `segments`, the longest of `longest` tokens, and `keys` of all."""

    tokens: int
    segments: int
    longest: int
    keys: int

    @classmethod
    def from_pass(cls, work: Pass) -> "Size":
        lengths = [segment.length for segment in work.segments]
        return cls(len(work.ids), len(lengths), max(lengths), sum(len(segment.slots) for segment in work.segments))

    def has_room_for(self, other: "Size") -> bool:
        return all(own >= needed for own, needed in zip(self, other, strict=True))


SIZES = [
    size
    for tokens in TOKENS
    for size in (
        Size(tokens, FEW, tokens, max(KEYS, 2 * tokens)),
        Size(tokens, tokens // 8, SHORT, min(SEEN * tokens, TOGETHER)),
    )
]
"""Of the graphs, small ones first."""


class Inputs(NamedTuple):
    """What a network is given for a pass. `ids`, `depths`: of its tokens, (1, tokens). `columns`: as in `Pass`."""

    ids: torch.Tensor
    depths: torch.Tensor
    segments: Segments
    columns: torch.Tensor

    @classmethod
    def fixed(cls, numbers: torch.Tensor, size: Size, lags: int) -> "Inputs":
        """Views of the numbers that `_filled` makes."""
        table, ends, keys = numbers.split([(4 + lags) * size.tokens, 2 * (size.segments + 1), size.keys])
        table = table.view(-1, size.tokens)
        first_queries, first_keys = ends.view(2, -1).int()
        packed = Packed(keys, first_queries, first_keys, size.longest, size.keys, size.tokens)
        return cls(table[:1], table[1:2], Segments(table[2], [packed]), table[3:])


class Graphs:
    """`run`: computes hidden states at the columns; `lags`: places of a read; `padding`: a slot of no sequence."""

    def __init__(
        self,
        run: Callable[[Inputs], Sequence[torch.Tensor]],
        lags: int,
        padding: int,
        device: torch.device,
        record: Record,
        sizes: Sequence[Size],
    ) -> None:
        self._lags, self._padding = lags, padding
        self._states: list[torch.Tensor] = []
        self._made: list[tuple[Size, torch.Tensor, torch.Tensor, Callable[[], object]]] = []
        for size in reversed(sizes):  # the largest first: the others use its memory
            width = (4 + lags) * size.tokens + 2 * (size.segments + 1) + size.keys
            numbers = torch.zeros(width, dtype=torch.long, device=device)
            numbers[2 * size.tokens : 3 * size.tokens] = padding
            inputs = Inputs.fixed(numbers, size, lags)
            # libraries make what they need when they run, which can't be recorded
            states = run(inputs)
            self._states = self._states or list(states)

            def repeated(numbers: torch.Tensor = numbers, size: Size = size) -> None:
                for kept, made in zip(self._states, run(Inputs.fixed(numbers, size, lags)), strict=True):
                    kept[: size.tokens] = made

            self._made.insert(0, (size, numbers, inputs.columns[-1], record(repeated)))

    def run(self, work: Pass) -> tuple[list[torch.Tensor], torch.Tensor] | None:
        """Hidden states and token ids of a pass's reads, valid until the next pass; None if no graph has room."""
        needed = Size.from_pass(work)
        for size, numbers, read, replay in self._made:
            if size.has_room_for(needed):
                filled = _filled(work, size, self._lags, self._padding)
                sent(filled, numbers[: len(filled)])
                replay()
                reads = work.columns.shape[1]
                return [states[:reads] for states in self._states], read[:reads]
        return None


def _filled(work: Pass, size: Size, lags: int, padding: int) -> np.ndarray[Any, Any]:
    """A pass in a graph's size: of tokens and reads as in `table`, then ends of queries and keys, and slots of keys."""
    table = np.zeros((4 + lags, size.tokens), np.int64)
    table[2] = padding
    tokens, columns = len(work.ids), work.columns
    table[:3, :tokens] = (
        work.ids,
        work.depths,
        np.concatenate([segment.slots[-segment.length :] for segment in work.segments]),
    )
    table[3:, : columns.shape[1]] = columns
    counts = [[segment.length, len(segment.slots)] for segment in work.segments]
    counts += [[0, 0]] * (size.segments - len(counts))
    ends = np.cumsum([[0, 0], *counts], axis=0).T
    return np.concatenate([table.ravel(), ends.ravel(), *(segment.slots for segment in work.segments)])


def records(network: PreTrainedModel) -> bool:
    """Whether a network's small passes are recorded: on a GPU, with FlashAttention, whose kernels have fixed inputs."""
    return network.device.type == "cuda" and segments.has_flash(network.device, network.dtype)


class CudaGraphs:
    """Records CUDA graphs, which share their memory: they never run at once."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], object]) -> Callable[[], object]:
        graph = torch.cuda.CUDAGraph()
        # the outer one restores the stream where a recording fails
        inner = torch.cuda.graph(graph, self._pool, capture_error_mode="thread_local")
        with torch.cuda.stream(torch.cuda.current_stream()), inner:
            run()
        return graph.replay
