"""Samples with vLLM in this process."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from vllm import AsyncEngineArgs, SamplingParams, TokensPrompt
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from unprm.errors import SamplerFailed
from unprm.samplers.prompts import TokenSampler
from unprm.types import Completion, SamplingSettings


class VllmSampler(TokenSampler):
    """Every call becomes one request to the engine, which batches requests and reuses their common prefixes."""

    def __init__(self, directory: Path, name: str, settings: SamplingSettings) -> None:
        super().__init__(directory, name, settings)
        cuda = torch.cuda.is_available()
        arguments = AsyncEngineArgs(
            model=str(directory),
            generation_config="vllm",
            enable_prefix_caching=True,
            enforce_eager=not cuda,  # compiling for a CPU takes longer than it saves
            enable_chunked_prefill=cuda,  # with seeds it fails on a CPU: "CPU Generator does not use offset"
            disable_log_stats=True,
        )
        self._engine = AsyncLLM.from_engine_args(arguments)
        self._numbers = itertools.count()

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        parameters = SamplingParams(
            n=count,
            seed=seed,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            max_tokens=self._settings.max_tokens,
            logprobs=0,  # of the chosen tokens alone
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        request = TokensPrompt(prompt_token_ids=list(prompt))
        try:
            async for output in self._engine.generate(request, parameters, f"complete-{next(self._numbers)}"):
                last = output
        except Exception as error:  # whatever the engine raises fails this call alone
            raise SamplerFailed(f"vLLM failed on a prompt of {len(prompt)} tokens: {error}") from error
        return [self._completion(written) for written in sorted(last.outputs, key=lambda written: written.index)]

    async def close(self) -> None:
        self._engine.shutdown()

    def _completion(self, written: CompletionOutput) -> Completion:
        ids = tuple(written.token_ids)
        steps = written.logprobs or ()
        logprobs = tuple(min(0.0, step[token].logprob) for token, step in zip(ids, steps, strict=True))
        return Completion(self.decode(ids), ids, logprobs, written.finish_reason == "stop")
