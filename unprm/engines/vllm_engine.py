"""Scores with vLLM, in processes of its own."""

import asyncio
import itertools
import threading
from collections.abc import Sequence

from vllm import AsyncEngineArgs, PoolingParams, TokensPrompt
from vllm.config import PoolerConfig
from vllm.v1.engine.async_llm import AsyncLLM

from unprm.engines.vllm_model import VllmModel, step_scores
from unprm.formats.family import PrmFormat
from unprm.types import BatchScores, Encoded, ModelDescription


class VllmEngine:
    """Every item is one request of vLLM, which batches them; the scores are read at the items' positions.

    `memory`: share of the GPU's memory that vLLM takes.
    """

    def __init__(
        self,
        model: VllmModel,
        format: PrmFormat,
        description: ModelDescription,
        batch_tokens: int,
        memory: float,
    ) -> None:
        self.format: PrmFormat = format
        self.description = description
        cuda = description.device.startswith("cuda")
        arguments = AsyncEngineArgs(
            model=str(model.directory),
            runner="pooling",
            convert=model.convert,
            hf_overrides=model.overrides,
            pooler_config=PoolerConfig(**model.pooling),
            dtype=description.dtype,
            max_model_len=description.max_tokens,
            max_num_batched_tokens=max(batch_tokens, description.max_tokens),
            gpu_memory_utilization=memory,
            enforce_eager=not cuda,  # compiling for a CPU takes longer than it saves
            disable_log_stats=True,
        )
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._engine = asyncio.run_coroutine_threadsafe(_start(arguments), self._loop).result()

    def score(self, batch: Sequence[Encoded]) -> BatchScores:
        """Step scores per item; vLLM runs all tokens of each."""
        scores = asyncio.run_coroutine_threadsafe(self._score(batch), self._loop).result()
        return BatchScores(scores, [len(item.ids) for item in batch])

    def close(self) -> None:
        """Ends vLLM's processes, and the loop that spoke with them."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._engine.shutdown()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _score(self, batch: Sequence[Encoded]) -> list[tuple[float, ...]]:
        return list(await asyncio.gather(*map(self._one, batch)))

    async def _one(self, item: Encoded) -> tuple[float, ...]:
        prompt = TokensPrompt(prompt_token_ids=list(item.ids))
        parameters = PoolingParams(task="token_classify", use_activation=False)
        async for output in self._engine.encode(prompt, parameters, f"score-{next(self._numbers)}"):
            last = output
        return step_scores(item, last.outputs.data)


async def _start(arguments: AsyncEngineArgs) -> AsyncLLM:
    """On the loop that it is used from."""
    return AsyncLLM.from_engine_args(arguments)
