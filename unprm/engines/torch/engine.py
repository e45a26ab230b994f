"""Scores with PyTorch, on a GPU or a CPU.

In a causal model, a token's hidden state holds for every sequence with the same prefix: the sequences of a scope share
a tree, and only tokens that are new to the tree are run.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from unprm.engines.torch import attention
from unprm.engines.torch.attention import KeyValues
from unprm.engines.torch.compiled import LINE, CompiledLayers
from unprm.engines.torch.graphs import PLANNED, SIZES, CudaGraphs, Graphs, Inputs, Record, Size, records
from unprm.engines.torch.memory import RunLimit, plan
from unprm.engines.torch.passes import Pass, PassItem, Pending, admit
from unprm.engines.torch.plain import check_lengths
from unprm.engines.torch.readers import Reader, scores_of, states
from unprm.engines.torch.segments import TOGETHER, Segments, sent
from unprm.engines.torch.tree import PrefixTree
from unprm.formats.family import PrmFormat
from unprm.types import Encoded, MemoryPlan, ModelDescription, StepScores

logger = logging.getLogger(__name__)

SMALLEST = 128
"""A pass of at most this many tokens is not halved when memory runs out."""
RECOVERY = 100
"""Passes after which a halved limit is doubled again."""


def slot_bytes(reader: Reader) -> int:
    return sum(map(KeyValues.bytes_per_token, reader.decoders))


def planned(reader: Reader, max_tokens: int, pass_tokens: int, cache_bytes: int = 0) -> MemoryPlan:
    """The memory that an engine takes. `max_tokens`: of a sequence; the others as those of `TorchEngine`."""
    slot = slot_bytes(reader)
    slots = cache_bytes // slot + max(pass_tokens, max_tokens)
    recorded = PLANNED if records(reader.decoders[0]) else 0
    return plan(reader.modules, reader.decoders, slots * slot, pass_tokens + recorded, reader.kept)


class TorchEngine:
    """A causal model that is read at the scored positions. `pass_tokens`: maximum tokens run at once, fewer for a while
    after memory ran out; longer sequences are run in parts. `cache_bytes`: for keys and values kept between batches."""

    def __init__(
        self,
        reader: Reader,
        format: PrmFormat,
        description: ModelDescription,
        pass_tokens: int,
        cache_bytes: int,
        together: int = TOGETHER,
    ) -> None:
        self.format: PrmFormat = format
        self._limit, self._together = RunLimit(pass_tokens, RECOVERY), together
        memory, slot = planned(reader, description.max_tokens, pass_tokens, cache_bytes), slot_bytes(reader)
        self.description = description.model_copy(update={"memory": memory})
        self._cached_tokens = cache_bytes // slot
        self._tree = PrefixTree(memory.slots // slot)
        # one more, for what fills a graph
        self._stores = [KeyValues(decoder, self._tree.capacity + 1) for decoder in reader.decoders]
        self._graphs: Graphs | None = None
        for decoder in reader.decoders:
            attention.use(decoder)
            # a CPU would gain 8 %, and compile for a minute
            if decoder.device.type == "cuda":
                CompiledLayers(decoder)
        self._reader: Reader | None = reader

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        """Step scores per item, the same in any batch up to rounding: 1e-5 in float32, 0.01 in bfloat16 and int8
        (`unprm-mini`, a small model with large margins: 0.06). Raises `SolutionTooLong`."""
        check_lengths(batch, self.description.max_tokens)
        margins, computed = self.margins(batch)
        self._tree.trim(self._cached_tokens)
        return list(map(scores_of, batch, margins, computed))

    def new_tokens(self, item: Encoded) -> int:
        return self._tree.missing(item.ids_to_last_position, item.scope)

    def margins(self, batch: Sequence[Encoded], pass_tokens: int | None = None) -> tuple[list[list[Any]], list[int]]:
        """The margins of each item's positions, and the tokens run for it. `pass_tokens`: for the engine's."""
        if self._reader is None:
            raise RuntimeError("the engine is closed")
        margins: list[list[Any]] = [[] for _ in batch]
        computed = [0] * len(batch)

        running: list[Run] = []

        def end() -> None:
            for run in running:
                run.work.end(run.values())
                for share, cost in zip(run.shares, run.work.computed, strict=True):
                    computed[share.index] += cost
                    if share.whole:
                        margins[share.index] = run.work.margins(share)
            running.clear()

        # sorted, so that shared prefixes are in the same pass
        entries = map(Pending, range(len(batch)), batch)
        waiting = deque(sorted(entries, key=lambda entry: (entry.item.scope, entry.item.ids)))
        try:
            while waiting:
                shares = admit(self._tree, waiting, min(pass_tokens or self._limit.most, self._limit.now))
                work = Pass(shares, self._reader)
                try:
                    run = Run(shares, work, self._read(work, self._reader))
                except torch.OutOfMemoryError:
                    end()
                    self._shrink(len(work.ids))
                    waiting.extendleft(Pending(share.index, share.item) for share in reversed(shares) if share.whole)
                    continue
                work.begin()
                self._limit.note_run()
                end()  # while a GPU computes the next
                running.append(run)
            end()
        except BaseException:
            self._tree.clear()  # tokens that were not run must not stay in the tree
            raise
        return margins, computed

    @property
    def cache_used(self) -> float:
        return min(1.0, len(self._tree) / self._cached_tokens) if self._cached_tokens else 0.0

    @torch.inference_mode()
    def record(self, record: Record | None = None, sizes: Sequence[Size] = SIZES) -> None:
        """Records graphs of small passes, if any. A failure is logged, and passes run without graphs."""
        self._graphs = None
        reader = self._reader
        assert reader is not None
        decoder = reader.decoders[0]
        if record is None and not records(decoder):
            return
        try:
            recorder = record or CudaGraphs()
            padding = self._tree.capacity
            self._graphs = Graphs(self._states, len(reader.sources), padding, decoder.device, recorder, sizes)
        except Exception as error:  # whatever of a model can't be recorded, its passes are right without
            reason = " ".join(str(error).split())[:LINE]
            logger.warning("passes are not recorded, small ones are slower: %s: %s", type(error).__name__, reason)

    def forget(self) -> None:
        self._tree.clear()

    def close(self) -> None:
        self._reader = self._graphs = None
        self._stores.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _shrink(self, tokens: int) -> None:
        self._tree.clear()
        if tokens <= SMALLEST:
            raise
        self._limit.halve(tokens)
        torch.cuda.empty_cache()
        now = self._limit.now
        logger.warning("out of memory with %d tokens at once; at most %d for the next %d passes", tokens, now, RECOVERY)

    @torch.inference_mode()
    def _read(self, work: Pass, reader: Reader) -> Callable[[], list[Any]]:
        """Starts a pass; what it returns waits for the values of the pass's `columns`."""
        if not work.ids:
            return list
        made = self._graphs.run(work) if self._graphs is not None else None
        if made is None:
            device = reader.decoders[0].device
            ids, depths = (sent(np.array([numbers]), device) for numbers in (work.ids, work.depths))
            segments = Segments.from_spans(work.segments, device, reader.decoders[0].dtype, self._together)
            columns = sent(work.columns, device)
            made = self._states(Inputs(ids, depths, segments, columns)), columns[-1]
        return _values(reader.read(*made)) if work.columns.size else list

    def _states(self, inputs: Inputs) -> list[torch.Tensor]:
        """Runs the networks, and returns the hidden states of the reader's sources."""
        assert self._reader is not None
        given = {"input_ids": inputs.ids, "position_ids": inputs.depths, "segments": inputs.segments}
        return [
            hidden
            for decoder, kept in zip(self._reader.decoders, self._stores, strict=True)
            for hidden in states(decoder, self._reader.sources, inputs.columns[:-1], **given, kept=kept)
        ]


class Run(NamedTuple):
    """A pass that was started for some items; `values` waits for its values."""

    shares: list[PassItem]
    work: Pass
    values: Callable[[], list[Any]]


def _values(values: torch.Tensor) -> Callable[[], list[Any]]:
    """Starts to copy values to the host; returns what waits for them. Raises `RuntimeError` for what is no number."""
    copied = values.to("cpu", non_blocking=True)
    done = torch.cuda.current_stream().record_event() if values.is_cuda else None

    def wait() -> list[Any]:
        if done is not None:
            done.synchronize()
        found: list[Any] = copied.tolist()
        if not np.isfinite(found).all():
            raise RuntimeError("the model's hidden states are not finite numbers")
        return found

    return wait
