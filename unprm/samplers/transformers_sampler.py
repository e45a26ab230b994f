"""Samples with transformers on this machine's CPU or GPU: the default for the embedded model."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from transformers import PreTrainedModel

from unprm import steps
from unprm.calibration import sigmoid
from unprm.engines.torch.attention import KeyValues
from unprm.engines.torch.memory import RunLimit
from unprm.engines.torch.probe import ProbeReader
from unprm.errors import SamplerFailed
from unprm.samplers.decoding import DecodingBatch, Prompt, Row
from unprm.samplers.prompts import TokenSampler, end_tokens
from unprm.types import Completion, Encoded, SamplingSettings

logger = logging.getLogger(__name__)

ON_CPU = 128
"""Completions that are written at the same time on a CPU."""
ON_GPU = 1024
"""The most that are written at the same time on a GPU: beyond that it is busy with arithmetic, and more rows only make
each slower."""
PROMPT = 256
"""Tokens that are assumed of a prompt when memory is planned."""
RESERVE = 0.1
"""Share of a GPU's free memory that is left for the activations."""
ADMITTED_SHARE = 1 / 8
"""At least this share of the batch joins together, if so many wait: computing one prompt takes as long as computing
several."""
ADMITTED_TOKENS = 8192
"""Prompts that join together have at most this many tokens, padding included; a longer one joins alone."""
DIGITS = 5
"""Of what is written down: already more than another machine's arithmetic reproduces."""
RECOVERY = 1000


def fitting_rows(model: PreTrainedModel, settings: SamplingSettings, free: int) -> int:
    """How many completions of the maximum length fit into so many free bytes of a GPU: from 1 to `ON_GPU`."""
    length = min(PROMPT + settings.max_tokens, int(model.config.max_position_embeddings))
    # logits in the network's type, and four times in float32 until a token is drawn; a recorded step keeps its own
    logits = 2 * int(model.config.vocab_size) * (int(model.dtype.itemsize) + 4 * torch.float32.itemsize)
    row = length * KeyValues.bytes_per_token(model) + logits
    return max(1, min(ON_GPU, int((1 - RESERVE) * free) // row))


@dataclass(slots=True)
class _Request:
    """A call of `complete`: its completions, and how many of them are incomplete."""

    rows: list[Row]
    missing: int
    done: asyncio.Future[list[Completion]]


class TransformersSampler(TokenSampler):
    """Writes waiting completions together; new ones begin as soon as others end.

    A completion's random numbers come from the call's seed plus its index, so the batch matters only by rounding. When
    a GPU's memory runs out, half as many go on at once, for `recovery` steps.

    A `probe` scores steps by what was read while they were written: after the sampler's own prompt, with the model's
    own space between steps, and without the separator that an engine puts after the last step. A truncated text is
    scored up to its last token but one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        directory: Path,
        name: str,
        settings: SamplingSettings,
        probe: ProbeReader | None = None,
        recovery: int = RECOVERY,
    ) -> None:
        super().__init__(directory, name, settings)
        self._probe = probe
        self._window: int = model.config.max_position_embeddings
        size = ON_CPU
        if model.device.type == "cuda":
            size = fitting_rows(model, settings, torch.cuda.mem_get_info(model.device)[0])
        self._batch = DecodingBatch(model, settings, end_tokens(directory), size, probe)
        self._limit = RunLimit(self._batch.size, recovery)
        self._waiting: deque[Row] = deque()
        self._requests: dict[Row, _Request] = {}
        self._closed = False
        self._work: asyncio.Task[None] | None = None
        # always the same thread: every computing thread has its own idle helper threads, which cost half the speed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt. Raises `SamplerFailed` without room, or once closed."""
        if self._closed:
            raise SamplerFailed(f"{self.model} is closed")
        if not 0 < len(prompt) < self._window:
            limit = self._window - 1
            raise SamplerFailed(f"a prompt takes 1 to {limit} tokens of {self.model}, {len(prompt)} were given")
        rows = [Row(tuple(prompt), seed + index) for index in range(count)]
        request = _Request(rows, count, asyncio.get_running_loop().create_future())
        self._requests |= dict.fromkeys(rows, request)
        self._waiting += rows
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._write_all())
        try:
            return await request.done
        finally:
            for row in rows:
                self._requests.pop(row, None)

    async def close(self) -> None:
        """Waits for the token in progress; callers of incomplete completions get `SamplerFailed`."""
        self._closed = True
        self._give_up(self._requests, SamplerFailed(f"{self.model} was closed before the completion was written"))
        self._requests.clear()
        if self._work is not None:
            await self._work
        self._thread.shutdown()

    async def _write_all(self) -> None:
        compute = asyncio.get_running_loop().run_in_executor
        await asyncio.sleep(0)  # lets every ready call join
        while self._waiting or self._batch.rows:
            admitted = self._admitted()
            abandoned = [row for row in self._batch.rows if row not in self._requests]
            rows = list(dict.fromkeys([*self._batch.rows, *admitted]))
            try:
                complete = await compute(self._thread, self._write, admitted, abandoned)
            except Exception as error:  # fails every call in the batch; waiting ones continue
                self._give_up(rows, SamplerFailed(f"{self.model} failed on a batch of {len(rows)}: {error!r}"))
                self._batch.clear()
                continue
            if complete is None:
                self._shrink(rows)
                continue
            self._limit.note_run()
            for row in complete:
                self._finish(row)

    def _admitted(self) -> list[Row]:
        """The rows that join now, those that have waited longest."""
        free = self._limit.now - len(self._batch.rows)
        if free < min(self._limit.now * ADMITTED_SHARE, len(self._waiting)):
            return []
        rows: list[Row] = []
        contexts: set[Prompt] = set()
        longest = 0
        while self._waiting and len(rows) < free:
            row = self._waiting.popleft()
            if row not in self._requests:
                continue
            contexts.add(row.context)
            longest = max(longest, len(row.context))
            if rows and len(contexts) * longest > ADMITTED_TOKENS:
                self._waiting.appendleft(row)
                break
            rows.append(row)
        return rows

    def _write(self, admitted: Sequence[Row], abandoned: Sequence[Row]) -> list[Row] | None:
        """Writes a token of each row; returns complete rows, or None, with an empty batch, without memory."""
        try:
            self._batch.remove(abandoned)
            if admitted:
                self._batch.add(admitted)
            return self._batch.step() if self._batch.rows else []
        except torch.OutOfMemoryError:
            self._batch.clear()
        torch.cuda.empty_cache()  # now that the error's tensors are freed as well
        return None

    def _shrink(self, rows: Sequence[Row]) -> None:
        """After memory ran out: the rows wait for a smaller batch; a row that was alone fails."""
        left = [row for row in rows if not self._batch.is_complete(row)]
        for row in set(rows).difference(left):  # memory ran out when others took their places
            self._finish(row)
        if len(rows) == 1:
            length = len(rows[0].context)
            self._give_up(left, SamplerFailed(f"{self.model} ran out of memory on one text of {length} tokens"))
            return
        self._limit.halve(len(rows))
        self._waiting.extendleft(reversed(left))
        logger.warning(
            "out of memory with %d completions; at most %d for the next %d tokens",
            len(rows),
            self._limit.now,
            self._limit.recovery,
        )

    def _finish(self, row: Row) -> None:
        if request := self._requests.get(row):
            request.missing -= 1
            if request.missing or request.done.done():
                return
            try:
                request.done.set_result([self._completion(row) for row in request.rows])
            except Exception as error:  # fails this call alone
                failure = SamplerFailed(f"{self.model} wrote completions and failed to read them: {error!r}")
                request.done.set_exception(failure)

    def _give_up(self, rows: Iterable[Row], failure: SamplerFailed) -> None:
        for row in rows:
            if (request := self._requests.get(row)) and not request.done.done():
                request.done.set_exception(failure)

    def _completion(self, row: Row) -> Completion:
        text, ended = self.decode(row.ids), self._batch.ended(row)
        scores = None if self._probe is None else self._step_scores(self._probe, text, row)
        logprobs = tuple(round(min(0.0, logprob), DIGITS) for logprob in row.logprobs)
        return Completion(text, tuple(row.ids), logprobs, ended, scores)

    def _step_scores(self, probe: ProbeReader, text: str, row: Row) -> tuple[float, ...]:
        """The scores of the text's steps; none where a step has no token of its own that was read."""
        ends = [min(end, len(row.values)) for end in steps.token_ends(text, row.ids, self.decode)]
        if any(before >= end for before, end in pairwise([0, *ends])):
            return ()
        written = Encoded(tuple(row.ids), tuple(end - 1 for end in ends))
        read = [[*values, logprob] for values, logprob in zip(row.values, row.logprobs, strict=False)]
        return tuple(round(sigmoid(margin), DIGITS) for margin in probe.margins(written, read))
