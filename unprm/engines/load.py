"""From a model's name to a loaded engine."""

import json
from pathlib import Path
from typing import Literal

import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from unprm import mini
from unprm.engines.checkpoint import PrmFiles, fetch, load_base, load_merged, load_network, load_tokenizer, locate
from unprm.engines.heads import VerdictHead, read_head
from unprm.engines.torch_engine import AtPositions, LikelihoodRatios, Margins, TorchEngine
from unprm.errors import ModelInvalid
from unprm.formats import unprm
from unprm.formats.family import Family, Head, LikelihoodRatio, Readout, Verdicts
from unprm.formats.registry import families, family_named, recognise
from unprm.types import ModelDescription

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16"]


def load_engine(
    model: str = mini.NAME,
    *,
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    family: str | None = None,
    reference: str | None = None,
    beta: float | None = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch_tokens: int = 16384,
) -> TorchEngine:
    """Loads a PRM and puts it on the device, an adapter merged.

    `model` is `unprm-mini` (embedded); the directory or hub name of a PRM made by `training train`, whose base is named
    in its `prm_config.json`; with `adapter`, the base; or a PRM of another family, which is told by its name or its
    `config.json`, or by `family`. `reference` and `beta` replace those of a family that is scored by likelihood
    ratios. `auto` takes CUDA if there is one, and bfloat16 on CUDA, float32 on a CPU. Only safetensors are read and no
    code comes with a model.

    Raises `ModelInvalid` with what is missing or does not fit.
    """
    place = torch.device(_pick_device(device))
    number = _pick_dtype(dtype, place)
    kind = _family(model, adapter, revision, family)
    if kind is unprm.FAMILY:
        files = locate(model, adapter, revision, adapter_revision)
    else:
        directory = fetch(model, revision)
        files = PrmFiles(directory, model, revision, None, None, model)
    tokenizer = load_tokenizer(files.base)
    format = kind.build(tokenizer, files.directory)
    readout = _adjusted(format.readout, reference, beta)
    margins, window = _margins(files, readout, tokenizer, number, place)
    description = ModelDescription(
        name=files.name,
        family=kind.name,
        base=files.base_name,
        adapter=files.adapter_name,
        revision=adapter_revision if adapter else revision,
        device=str(place),
        dtype=str(number).removeprefix("torch."),
        max_tokens=window,
        input_format=format.input_format,
        demo=model == mini.NAME,
    )
    return TorchEngine(margins, format, description, batch_tokens)


def _family(model: str, adapter: str | None, revision: str | None, name: str | None) -> Family:
    """The family that is asked for, or that the model shows."""
    if name is None and (adapter or model == mini.NAME):
        return unprm.FAMILY
    if name == unprm.FAMILY.name:
        return unprm.FAMILY
    if adapter:
        raise ModelInvalid(f"family {name} has no adapters: leave out --adapter, or --family")
    directory = fetch(model, revision)
    if name is None and (directory / unprm.CONFIG_NAME).exists():
        return unprm.FAMILY
    architectures = _architectures(directory)
    asked = None if name is None else family_named(name)
    shown = next((own for own in families().values() if set(own.architectures) & set(architectures)), None)
    if asked and shown not in (None, asked):
        raise ModelInvalid(f"{model} is a model of family {shown.name}, not {asked.name}: leave out --family")
    return asked or recognise(model, architectures)


def _architectures(directory: Path) -> list[str]:
    try:
        told = json.loads((directory / "config.json").read_text("utf-8"))
        return [str(name) for name in told.get("architectures") or []]
    except (OSError, ValueError, AttributeError) as error:
        raise ModelInvalid(f"{directory} has no readable config.json: it is not a model's directory") from error


def _adjusted(readout: Readout, reference: str | None, beta: float | None) -> Readout:
    """The readout with another reference model or β, if they are given and it has any."""
    if reference is None and beta is None:
        return readout
    if not isinstance(readout, LikelihoodRatio):
        raise ModelInvalid("--reference and --beta are for families that are scored by likelihood ratios")
    return LikelihoodRatio(readout.beta if beta is None else beta, reference or readout.reference)


def _margins(
    files: PrmFiles, readout: Readout, tokenizer: Tokenizer, dtype: torch.dtype, place: torch.device
) -> tuple[Margins, int]:
    """The loaded model as the engine takes it, and its window in tokens."""
    if isinstance(readout, Head):
        network = load_network(AutoModel, files.base, dtype)
        head = read_head(files.base, readout, network.config.hidden_size)
        margins: Margins = AtPositions(network, head, place)
    elif isinstance(readout, Verdicts):
        network = load_merged(files, dtype)
        margins = AtPositions(
            network.get_decoder(), VerdictHead(network.get_output_embeddings().weight, readout), place
        )
    else:
        network, other = load_base(files.base, dtype), load_base(fetch(readout.reference, None), dtype)
        if len(network.get_input_embeddings().weight) != len(other.get_input_embeddings().weight):
            raise ModelInvalid(f"{files.base_name} and its reference model {readout.reference} have other vocabularies")
        margins = LikelihoodRatios(network, other, readout.beta, place)
    tokens, rows = tokenizer.get_vocab_size(), len(network.get_input_embeddings().weight)
    if tokens > rows:
        raise ModelInvalid(
            f"{files.base}: the tokenizer has {tokens} tokens, the model {rows}: they don't belong together"
        )
    return margins, int(network.config.max_position_embeddings)


def _pick_device(device: Device) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelInvalid("device cuda was asked for, and PyTorch sees no CUDA device")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _pick_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if dtype == "bfloat16" else torch.float32
