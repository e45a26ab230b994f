"""Scores with vLLM, which runs in its own processes."""

import asyncio
import itertools
import threading
from collections.abc import Sequence

import torch
from vllm import AsyncEngineArgs, PoolingOutput, PoolingParams, PoolingRequestOutput, TokensPrompt
from vllm.config import PoolerConfig
from vllm.v1.engine.async_llm import AsyncLLM

from unprm.engines.vllm.model import VllmModel
from unprm.engines.vllm.pooled import step_scores
from unprm.engines.vllm.score_cache import ScoreCache
from unprm.formats.family import PrmFormat
from unprm.types import Encoded, ModelDescription, StepScores

BLOCK = 32
"""Tokens of a prefix-cache block on a CPU: the fewest that vLLM has a kernel for. On a GPU vLLM chooses, mostly 16."""
SCORES = 2**18
"""Step scores that are cached, 150 bytes each."""


class VllmEngine:
    """Every item is one request to vLLM, whose rows are read at the item's positions. `memory`: fraction of each of
    `gpus` GPUs. `caching`: vLLM keeps prefixes; their scores are kept here, since it returns nothing for cached
    tokens."""

    def __init__(
        self,
        model: VllmModel,
        format: PrmFormat,
        description: ModelDescription,
        dtype: torch.dtype,
        batch_tokens: int,
        memory: float,
        gpus: int,
        caching: bool,
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
            dtype=str(dtype).removeprefix("torch."),
            quantization="fp8" if description.dtype == "float8" else None,
            max_model_len=description.max_tokens,
            max_num_batched_tokens=max(batch_tokens, description.max_tokens),
            gpu_memory_utilization=memory,
            tensor_parallel_size=gpus,
            enable_prefix_caching=caching,
            block_size=None if cuda else BLOCK,
            enforce_eager=not cuda,  # compiling for a CPU takes longer than it saves
            disable_log_stats=True,
        )
        self._caching = caching
        self._known = ScoreCache(SCORES)
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._engine = asyncio.run_coroutine_threadsafe(_start(arguments), self._loop).result()

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        return asyncio.run_coroutine_threadsafe(self._score(batch), self._loop).result()

    def close(self) -> None:
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

    async def _score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        return list(await asyncio.gather(*map(self._one, batch)))

    async def _one(self, item: Encoded) -> StepScores:
        known = self._known.find(item) if self._caching else []
        early = tuple(score for score in known if score is not None)
        if self._caching and len(early) == len(known):
            return StepScores(early, 0, len(item.ids))
        output = await self._run(item, self._caching)
        skipped = output.num_cached_tokens
        computed = len(item.ids_to_last_position) - skipped
        before = sum(position < skipped for position in item.positions)
        if None in known[:before]:  # vLLM has cached the tokens, but their scores are lost
            output, before, skipped = await self._run(item, False), 0, 0
            computed += len(item.ids_to_last_position)
        scores = (*early[:before], *step_scores(item, output.outputs.data.tolist(), skipped))
        if self._caching:
            self._known.keep(item, scores)
        return StepScores(scores, computed, len(item.ids))

    async def _run(self, item: Encoded, cached: bool) -> PoolingRequestOutput[PoolingOutput]:
        """Runs all of an item's needed tokens, or, if `cached`, those that vLLM has not cached."""
        prompt = TokensPrompt(prompt_token_ids=list(item.ids_to_last_position))
        if item.scope:
            prompt["cache_salt"] = item.scope
        parameters = PoolingParams(task="token_classify", use_activation=False, skip_reading_prefix_cache=not cached)
        async for output in self._engine.encode(prompt, parameters, f"score-{next(self._numbers)}"):
            last = output
        return last


async def _start(arguments: AsyncEngineArgs) -> AsyncLLM:
    return AsyncLLM.from_engine_args(arguments)
