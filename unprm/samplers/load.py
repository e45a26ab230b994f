"""Creates a sampler by its name."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from unprm import mini
from unprm.checkpoints.files import digests, fetch, load_base
from unprm.engines.torch.devices import Gpu, pick_device
from unprm.engines.torch.probe import ProbeReader
from unprm.errors import ModelInvalid, SamplerFailed
from unprm.formats.family import Probe
from unprm.models.options import ModelSpec
from unprm.models.source import ModelSource
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

    `transformers` and `vllm` run it here; `openai`, which needs a `tokenizer` here, and `chat` send requests to the
    servers at `urls` with OPENAI_API_KEY, if set. Raises `ModelInvalid`, also for a probe of another model or without
    `transformers`, and `SamplerFailed` without urls.
    """
    if settings.probe is not None and kind != "transformers":
        raise ModelInvalid(
            f"the sampler {kind!r} gives no hidden states, which the probe {settings.probe} reads: leave out --probe, "
            "or sample with transformers"
        )
    if kind in ("openai", "chat"):
        if not urls:
            raise SamplerFailed(f"the sampler {kind!r} asks servers: at least one --url is needed")
        client = OpenAIClient(urls, os.environ.get("OPENAI_API_KEY"), timeout=SECONDS, attempts=ATTEMPTS)
        if kind == "chat":
            return ChatSampler(client, model, settings)
        return OpenAISampler(client, model, fetch(tokenizer or model, None, weights=False), settings)
    directory = fetch(model, None)
    if kind == "vllm":
        from unprm.samplers.vllm_sampler import VllmSampler

        return VllmSampler(directory, model, settings)
    device = pick_device("auto", Gpu.find(), falls_back=model == mini.NAME)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if settings.probe is None:
        return TransformersSampler(load_base(directory, dtype).to(device), directory, model, settings)
    reader = _probe_of(model, directory, settings.probe).reader(dtype, torch.device(device))
    assert isinstance(reader, ProbeReader)
    return TransformersSampler(reader.network, directory, model, settings, reader)


def _probe_of(model: str, directory: Path, name: str) -> ModelSource:
    """The probe of this name; raises `ModelInvalid` if it is none, or one of another model than that in `directory`."""
    source = ModelSource.find(ModelSpec(model=name))
    if not isinstance(source.readout, Probe):
        raise ModelInvalid(f"{name} is not a probe but a model of the family {source.family.name}")
    base = source.files.base
    if not base.samefile(directory) and digests(base) != digests(directory):
        raise ModelInvalid(
            f"the probe {name} reads the model {source.files.base_name}, whose files are not those of {model}, which "
            "writes the samples"
        )
    return source
