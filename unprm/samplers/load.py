"""From a sampler's name to a sampler."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from unprm.engines.load import fetch, load_base
from unprm.errors import SamplerFailed
from unprm.samplers.openai_sampler import ChatSampler, Endpoints, OpenAISampler
from unprm.samplers.transformers_sampler import TransformersSampler
from unprm.types import Sampler, SamplingSettings

SamplerName = Literal["transformers", "vllm", "openai", "chat"]
SECONDS = 1800.0
"""A call that takes longer has failed: a server that hangs is not waited for."""


def load_sampler(
    kind: SamplerName, model: str, settings: SamplingSettings, urls: Sequence[str] = (), revision: str | None = None
) -> Sampler:
    """A sampler for a model of the hub, a directory, or `unprm-mini`.

    `transformers` and `vllm` run it here. `openai` and `chat` ask the servers at `urls`, with the API key of the
    environment's `OPENAI_API_KEY` if there is one; `openai` needs the model's tokenizer here.

    Raises `ModelInvalid` if the model can't be loaded, `SamplerFailed` if urls are missing.
    """
    if kind in ("openai", "chat"):
        if not urls:
            raise SamplerFailed(f"the sampler {kind!r} asks servers: at least one --url is needed")
        endpoints = Endpoints(urls, os.environ.get("OPENAI_API_KEY"), SECONDS)
        if kind == "chat":
            return ChatSampler(endpoints, model, settings)
        return OpenAISampler(endpoints, model, fetch(model, revision), settings)
    directory = fetch(model, revision)
    if kind == "vllm":
        from unprm.samplers.vllm_sampler import VllmSampler

        return VllmSampler(directory, model, settings)
    return _transformers(directory, model, settings)


def _transformers(directory: Path, model: str, settings: SamplingSettings) -> TransformersSampler:
    cuda = torch.cuda.is_available()
    network = load_base(directory, torch.bfloat16 if cuda else torch.float32).to("cuda" if cuda else "cpu")
    return TransformersSampler(network, directory, model, settings)
