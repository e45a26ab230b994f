"""From a model's name to a loaded engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from unprm import mini
from unprm.engines.torch_engine import TorchEngine
from unprm.errors import ModelInvalid
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.types import ModelDescription

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16"]
_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True, slots=True)
class PrmFiles:
    """Where the parts of a PRM lie, everything local; no adapter if it is merged into the base."""

    base: Path
    base_name: str
    base_revision: str | None
    adapter: Path | None
    adapter_name: str | None
    config: PrmConfig


def load_engine(
    model: str = mini.NAME,
    *,
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch_tokens: int = 16384,
) -> TorchEngine:
    """Loads a PRM, merges its adapter and puts it on the device.

    `model` is `unprm-mini` (embedded), the directory or hub name of a PRM made by `training train`, whose base
    is named in its `prm_config.json`; or, with `adapter`, the base. `auto` takes CUDA if there is one, and
    bfloat16 on CUDA, float32 on a CPU. Only safetensors are read and no code comes with a model.

    Raises `ModelInvalid` with what is missing or does not fit.
    """
    files = locate(model, adapter, revision, adapter_revision)
    place = torch.device(_pick_device(device))
    number = _pick_dtype(dtype, place)
    tokenizer = load_tokenizer(files.base)
    format = UnprmFormat(tokenizer, files.config)
    merged = load_merged(files, number).to(place)
    description = ModelDescription(
        name=files.config.name,
        family=format.family,
        base=files.base_name,
        adapter=files.adapter_name,
        revision=adapter_revision if adapter else revision,
        device=str(place),
        dtype=str(number).removeprefix("torch."),
        max_tokens=int(merged.config.max_position_embeddings),
        input_format=files.config.input_format,
        demo=model == mini.NAME,
    )
    return TorchEngine(merged, format, description, batch_tokens)


def locate(model: str, adapter: str | None, revision: str | None, adapter_revision: str | None) -> PrmFiles:
    """Finds or downloads the base and the adapter. Arguments and errors as in `load_engine`."""
    if model == mini.NAME and adapter is None:
        config = PrmConfig.read(mini.ADAPTER)
        return PrmFiles(mini.BASE, f"{mini.NAME} base", None, mini.ADAPTER, mini.NAME, config)
    if adapter is None:
        place = fetch(model, revision)
        config = PrmConfig.read(place)
        if config.base == ".":
            return PrmFiles(place, model, revision, None, None, config)
        base = str(place / config.base) if config.base.startswith(".") else config.base
        return PrmFiles(fetch(base, config.base_revision), config.base, config.base_revision, place, model, config)
    place = fetch(adapter, adapter_revision)
    return PrmFiles(fetch(model, revision), model, revision, place, adapter, PrmConfig.read(place))


def fetch(name: str, revision: str | None) -> Path:
    """The local directory of a model: a path as it is, a hub name after its download into the cache.

    Raises `ModelInvalid` if there is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    if name == mini.NAME:
        return mini.BASE
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelInvalid(
            f"model {name!r} is no directory here and could not be fetched from the hub: {reason}"
        ) from error


def load_tokenizer(base: Path) -> Tokenizer:
    """The tokenizer of a base model; errors as `read_tokenizer`."""
    backend: Tokenizer = read_tokenizer(base).backend_tokenizer
    return backend


def read_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a directory, just as its `tokenizer.json` says if there is one.

    `AutoTokenizer` would give every model of the Qwen2 architecture Qwen2's own splitting into words, whatever
    the file says. Raises `ModelInvalid` if there is no usable tokenizer.
    """
    try:
        if (directory / "tokenizer.json").is_file():
            return PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
        return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{directory}: no usable tokenizer ({error})") from error


def load_base(base: Path, dtype: torch.dtype) -> PreTrainedModel:
    """A causal language model from safetensors, in evaluation mode, on the CPU."""
    if not any(base.glob("*.safetensors")):
        raise ModelInvalid(f"{base} has no safetensors: other weight formats can run code and are refused")
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            base, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, SafetensorError, RuntimeError) as error:
        raise ModelInvalid(f"{base} can't be loaded as a causal language model: {error}") from error
    return model.eval()


def load_merged(files: PrmFiles, dtype: torch.dtype) -> PreTrainedModel:
    """The base with its adapter merged in, in evaluation mode, on the CPU; raises `ModelInvalid` if they don't fit."""
    if files.adapter is None:
        return load_base(files.base, dtype)
    weights = files.adapter / "adapter_model.safetensors"
    if not weights.is_file():
        raise ModelInvalid(f"{files.adapter} has no adapter_model.safetensors")
    base = load_base(files.base, dtype)
    try:
        config = PeftConfig.from_pretrained(str(files.adapter))
        tuned = PeftModel.from_pretrained(base, str(files.adapter), config=config, use_safetensors=True)
    except (OSError, ValueError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelInvalid(
            f"the adapter {files.adapter_name} does not fit the base {files.base_name}: {reason}"
        ) from error
    _check_names(tuned, weights, files)
    merged: PreTrainedModel = tuned.merge_and_unload()
    return merged


def _check_names(tuned: PeftModel, weights: Path, files: PrmFiles) -> None:
    """Every tensor of the adapter has its place in the base, and every place its tensor: PEFT would leave what
    is too many aside, and what is missing at its random start."""
    with safe_open(weights, framework="pt") as file:
        odd = set(file.keys()) ^ set(get_peft_model_state_dict(tuned, save_embedding_layers=False))
    if odd:
        raise ModelInvalid(
            f"the adapter {files.adapter_name} does not fit the base {files.base_name}: {len(odd)} tensors are missing "
            f"on one side, for example {min(odd)}"
        )


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
