"""Creates a sampler by its name."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from unprm.checkpoints.files import fetch, fetch_tokenizer, load_base
from unprm.errors import SamplerFailed
from unprm.openai.client import NEUTRAL, OpenAIClient
from unprm.samplers.openai_sampler import ATTEMPTS, ChatSampler, OpenAISampler
from unprm.samplers.transformers_sampler import TransformersSampler
from unprm.types import Sampler, SamplerName, SamplingSettings

SECONDS = 1800.0
"""Timeout of a call, so that a server that hangs is not waited for."""


@dataclass(frozen=True, slots=True)
class SamplerSource:
    """Where completions come from: a model on the hub, a directory, or `unprm-mini`.

    `transformers` and `vllm` run it here. `openai` and `chat` send requests to the servers at `urls`, with the API key
    from the environment variable `OPENAI_API_KEY`, if set; `openai` needs the model's tokenizer here: `tokenizer`, or
    that of the name of the model.
    """

    kind: SamplerName
    model: str
    urls: tuple[str, ...] = ()
    tokenizer: str | None = None

    @property
    def neutral(self) -> Mapping[str, float]:
        """That of the sampler."""
        return NEUTRAL if self.kind in ("openai", "chat") else {}

    def load(self, settings: SamplingSettings) -> Sampler:
        """The sampler. Raises `ModelInvalid` if the model can't be loaded, `SamplerFailed` if urls are missing."""
        if self.kind in ("openai", "chat"):
            return self._over_http(settings)
        directory = fetch(self.model, None)
        if self.kind == "vllm":
            from unprm.samplers.vllm_sampler import VllmSampler

            return VllmSampler(directory, self.model, settings)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        network = load_base(directory, torch.bfloat16 if device == "cuda" else torch.float32).to(device)
        return TransformersSampler(network, directory, self.model, settings)

    def _over_http(self, settings: SamplingSettings) -> Sampler:
        if not self.urls:
            raise SamplerFailed(f"the sampler {self.kind!r} asks servers: at least one --url is needed")
        client = OpenAIClient(self.urls, os.environ.get("OPENAI_API_KEY"), timeout=SECONDS, attempts=ATTEMPTS)
        if self.kind == "chat":
            return ChatSampler(client, self.model, settings)
        return OpenAISampler(client, self.model, fetch_tokenizer(self.tokenizer or self.model), settings)
