"""Samples with transformers on this machine's CPU or GPU: the default for the embedded model."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from unprm.errors import SamplerFailed
from unprm.samplers.decoding import DecodingBatch, Row
from unprm.samplers.prompts import TokenSampler, end_tokens
from unprm.types import Completion, SamplingSettings

BATCH = 128
"""Completions that are written at the same time."""
ADMITTED = BATCH // 8
"""At least this many join together, if this many wait: computing one prompt takes as long as computing several."""


@dataclass(slots=True)
class _Request:
    """A call of `complete`: its completions, and how many of them are incomplete."""

    rows: list[Row]
    missing: int
    done: asyncio.Future[list[Completion]]


class TransformersSampler(TokenSampler):
    """Waiting completions are written together, and new ones begin as soon as others have ended.

    Every completion has its own random generator, seeded with the call's seed plus its index, so the rest of the
    batch does not matter, except for the last digits of the arithmetic.
    """

    def __init__(self, model: PreTrainedModel, directory: Path, name: str, settings: SamplingSettings) -> None:
        super().__init__(directory, name, settings)
        self._window: int = model.config.max_position_embeddings
        self._batch = DecodingBatch(model, settings, end_tokens(directory), BATCH)
        self._waiting: deque[Row] = deque()
        self._requests: dict[Row, _Request] = {}
        self._closed = False
        self._work: asyncio.Task[None] | None = None
        # always the same thread: every computing thread has its own idle helper threads, which cost half the speed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt. Raises `SamplerFailed` if it leaves no room in the model's window, or the
        sampler is closed."""
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
            try:
                complete = await compute(self._thread, self._write, admitted, self._abandoned())
            except Exception as error:  # fails every call in the batch; waiting ones continue
                rows = dict.fromkeys([*self._batch.rows, *admitted])
                self._give_up(rows, SamplerFailed(f"{self.model} failed on a batch of {len(rows)}: {error!r}"))
                self._batch.remove(list(self._batch.rows))
                continue
            for row in complete:
                self._finish(row)

    def _admitted(self) -> list[Row]:
        """The rows that join now, those that have waited longest."""
        while self._waiting and self._waiting[0] not in self._requests:
            self._waiting.popleft()
        free = self._batch.size - len(self._batch.rows)
        if free < min(ADMITTED, len(self._waiting)):
            return []
        return [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]

    def _abandoned(self) -> list[Row]:
        """Rows whose callers have stopped waiting."""
        return [row for row in self._batch.rows if row not in self._requests]

    def _write(self, admitted: Sequence[Row], abandoned: Sequence[Row]) -> list[Row]:
        self._batch.remove(abandoned)
        if admitted:
            self._batch.add(admitted)
        return self._batch.step() if self._batch.rows else []

    def _finish(self, row: Row) -> None:
        if request := self._requests.get(row):
            request.missing -= 1
            if not request.missing and not request.done.done():
                request.done.set_result([self._completion(row) for row in request.rows])

    def _give_up(self, rows: Iterable[Row], failure: SamplerFailed) -> None:
        for row in rows:
            if (request := self._requests.get(row)) and not request.done.done():
                request.done.set_exception(failure)

    def _completion(self, row: Row) -> Completion:
        ended = self._batch.ended(row)
        return Completion(self.decode(row.ids), tuple(row.ids), _rounded(row.logprobs), ended)


def _rounded(logprobs: Iterable[float]) -> tuple[float, ...]:
    """Five digits are already more than another machine's arithmetic reproduces."""
    return tuple(round(min(0.0, logprob), 5) for logprob in logprobs)
