"""Creates a sampler by its name."""

import os
from collections.abc import Sequence

import torch

from unprm import mini
from unprm.checkpoints.files import fetch, fetch_tokenizer, load_base
from unprm.engines.torch.devices import Gpu, pick_device
from unprm.errors import SamplerFailed
from unprm.openai.client import OpenAIClient
from unprm.samplers.openai_sampler import ATTEMPTS, ChatSampler, OpenAISampler
from unprm.samplers.transformers_sampler import TransformersSampler
from unprm.types import Sampler, SamplerName, SamplingSettings

SECONDS = 1800.0
"""Timeout of a call, so that a server that hangs is not waited for."""


def load_sampler(
    kind: SamplerName,
    model: str,
    settings: SamplingSettings,
    urls: Sequence[str] = (),
    tokenizer: str | None = None,
) -> Sampler:
    """A sampler of `model`: a name on the hub, a directory, or `unprm-mini`.

    `transformers` and `vllm` run it here. `openai` and `chat` send requests to the servers at `urls`, with the API key
    from the environment variable `OPENAI_API_KEY`, if set; `openai` needs the model's tokenizer here: `tokenizer`, or
    that of the name of the model.

    Raises `ModelInvalid` if the model can't be loaded, or PyTorch can't use the machine's GPU, and `SamplerFailed` if
    urls are missing.
    """
    if kind in ("openai", "chat"):
        if not urls:
            raise SamplerFailed(f"the sampler {kind!r} asks servers: at least one --url is needed")
        client = OpenAIClient(urls, os.environ.get("OPENAI_API_KEY"), timeout=SECONDS, attempts=ATTEMPTS)
        if kind == "chat":
            return ChatSampler(client, model, settings)
        return OpenAISampler(client, model, fetch_tokenizer(tokenizer or model), settings)
    directory = fetch(model, None)
    if kind == "vllm":
        from unprm.samplers.vllm_sampler import VllmSampler

        return VllmSampler(directory, model, settings)
    device = pick_device("auto", Gpu.find(), falls_back=model == mini.NAME)
    network = load_base(directory, torch.bfloat16 if device == "cuda" else torch.float32).to(device)
    return TransformersSampler(network, directory, model, settings)
