"""Finds and loads tokenizers, networks and adapters: only safetensors, and no code that comes with a model."""

import hashlib
import json
import logging
import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from unprm import mini
from unprm.checkpoints import lora
from unprm.errors import ModelInvalid
from unprm.formats.registry import read_config as read_prm_config

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

LOADING = threading.RLock()
"""transformers changes process-wide settings while it loads: concurrent loads corrupt each other's tensors."""
_PROGRESS_SECONDS = 5.0
StoredDtype: TypeAlias = "torch.dtype | Literal['auto']"
"""The type that weights are loaded in; `auto`: the type they are stored in."""
_DIGESTED = ("*.safetensors", "config.json", "adapter_config.json")
_BESIDE = {
    *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "lora_dropout", "fan_in_fan_out"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "task_type", "inference_mode"),
    *("base_model_name_or_path", "revision", "auto_mapping", "peft_version"),
}
"""PEFT's options of adapters that leave the tensors of their base as they are."""
_SETTINGS = ["*.json", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True, slots=True)
class PrmFiles:
    """The local directories of a PRM's parts, and their names; no adapter if it is merged into the base."""

    base: Path
    base_name: str
    adapter: Path | None
    adapter_name: str | None
    name: str

    @property
    def directory(self) -> Path:
        return self.adapter or self.base

    def weight_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.base.glob("*.safetensors"))

    def parameters(self) -> int:
        """Parameters of the base; 0 if a file can't be read, which loading reports."""
        count = 0
        with suppress(SafetensorError, OSError):
            for path in self.base.glob("*.safetensors"):
                with safe_open(path, "pt") as file:
                    count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        return count


def locate(
    model: str,
    adapter: str | None = None,
    revision: str | None = None,
    adapter_revision: str | None = None,
    configured: bool = True,
    weights: bool = True,
) -> PrmFiles:
    """Finds or downloads a PRM's parts: a whole model, a base with its adapter, or an adapter whose configuration names
    the base: `prm_config.json` if `configured`, else PEFT's. Raises `ModelInvalid`."""
    if model in mini.ADAPTERS and adapter is None:
        return PrmFiles(mini.BASE, f"{mini.NAME} base", mini.ADAPTERS[model], model, model)
    place = fetch(model, revision, weights=weights)
    if adapter is not None:
        beside = fetch(adapter, adapter_revision, "--adapter", weights=weights)
        return PrmFiles(place, model, beside, adapter, read_prm_config(beside).name if configured else adapter)
    name, base, base_revision = model, ".", None
    if configured:
        config = read_prm_config(place)
        name, base, base_revision = config.name, config.base, config.base_revision
    elif (place / lora.CONFIG).is_file():
        base, base_revision = lora.base(place)
    if base == ".":
        return PrmFiles(place, model, None, None, name)
    found = str(place / base) if configured and base.startswith(".") else base
    return PrmFiles(fetch(found, base_revision, weights=weights), base, place, model, name)


def fetch(name: str, revision: str | None, what: str = "model", *, weights: bool = True) -> Path:
    """A model's directory: a path unchanged, a hub name after its download, with `weights` or without, or an embedded
    base. Raises `ModelInvalid`, which says `what` was to be fetched."""
    if Path(name).is_dir():
        return Path(name)
    if name in mini.ADAPTERS:
        return mini.BASE
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ModelInvalid(f"{what} {name!r} is not a directory here, and the hub can't have a model of this name")
    try:
        wanted = [*_SETTINGS, "*.safetensors"] if weights else _SETTINGS
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, tqdm_class=_LoggedProgress))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        advice = "give the directory, or check the name, its revision, the network and, for a gated model, HF_TOKEN"
        if constants.HF_HUB_OFFLINE:
            advice = "HF_HUB_OFFLINE is set: give the directory, or fetch it once without that"
        if not constants.HF_HUB_OFFLINE or type(error) is not LocalEntryNotFoundError:  # says the same at length
            advice += f" ({str(error).partition('. ')[0].splitlines()[0]})"
        raise ModelInvalid(
            f"{what} {name!r} is not a directory here and could not be fetched from the hub: {advice}"
        ) from error


def digests(directory: Path) -> list[list[str]]:
    """Names and SHA-256 of a directory's weights and settings.

    Of all bytes, since a token's rows may be all that differs: a second per GB and core, which leaves files in memory.
    """
    paths = sorted(path for name in _DIGESTED for path in directory.glob(name))
    with ThreadPoolExecutor() as pool:
        return [[path.name, found] for path, found in zip(paths, pool.map(_sha256, paths), strict=True)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _LoggedProgress(tqdm):  # type: ignore[misc]
    """Logs a line at intervals instead of drawing a progress bar."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"mininterval": _PROGRESS_SECONDS})

    def display(self, *arguments: Any, **options: Any) -> None:
        if self.unit == "B" and self.total:
            logger.info("downloaded %sB of %sB", tqdm.format_sizeof(self.n), tqdm.format_sizeof(self.total))


def read_config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{directory} has no readable config.json: it is not a model's directory") from error
    return config


def load_tokenizer(base: Path) -> Tokenizer:
    backend: Tokenizer = read_tokenizer(base).backend_tokenizer
    return backend


def read_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a directory's `tokenizer.json`, which `AutoTokenizer` ignores in part for Qwen2.

    Raises `ModelInvalid` without a usable tokenizer, or with SentencePiece's file alone: transformers 5 would convert
    it to a tokenizer with other ids for some texts.
    """
    try:
        if (directory / "tokenizer.json").is_file():
            return PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
        if (directory / "tokenizer.model").is_file():
            raise ModelInvalid(
                f"{directory} has tokenizer.model and no tokenizer.json, which can't be read exactly: write it with "
                "transformers 4, `AutoTokenizer.from_pretrained(…).save_pretrained(…)`"
            )
        return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{directory}: no usable tokenizer ({error})") from error


def load_base(base: Path, dtype: StoredDtype) -> PreTrainedModel:
    """A causal language model from safetensors, in evaluation mode, on the CPU."""
    return load_network(AutoModelForCausalLM, base, dtype)


def load_network(kind: Any, directory: Path, dtype: StoredDtype) -> PreTrainedModel:
    """A network of one of transformers' auto classes, from safetensors, on the CPU. Raises `ModelInvalid`."""
    if not any(directory.glob("*.safetensors")):
        raise ModelInvalid(f"{directory} has no safetensors: other weight formats can run code and are refused")
    lora.refuse_unreadable(directory)  # transformers gives an adapter's directory to PEFT
    with LOADING, _saying(f"{directory} can't be loaded as a language model"):
        network, report = kind.from_pretrained(
            directory,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    if missing := report["missing_keys"]:
        raise ModelInvalid(f"{directory}: {len(missing)} tensors are missing, for example {min(missing)}")
    model: PreTrainedModel = network.eval()
    return model


@contextmanager
def _saying(sentence: str) -> Iterator[None]:
    """Makes what libraries raise for a model's files a `ModelInvalid`, which begins with this sentence."""
    try:
        yield
    except (OSError, ValueError, SafetensorError, RuntimeError) as error:
        reason = " ".join(" ".join(str(error).splitlines()[:2]).split())
        raise ModelInvalid(f"{sentence}: {reason}") from error


def load_merged(files: PrmFiles, dtype: StoredDtype) -> PreTrainedModel:
    """The base with its adapter merged in, in evaluation mode, on the CPU; raises `ModelInvalid` if they don't fit."""
    if files.adapter is None:
        return load_base(files.base, dtype)
    lora.check(files.adapter)
    return adapted(load_base(files.base, dtype), files, merge=True)


def adapted(base: PreTrainedModel, files: PrmFiles, *, merge: bool) -> PreTrainedModel:
    """A base with the adapter of `files`, merged or computed beside its weights. Raises `ModelInvalid` if they don't
    fit, or if an adapter that is not merged is more than LoRA of linear layers."""
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict  # slow to import, and not all models need it

    with (
        LOADING,
        warnings.catch_warnings(),
        _saying(f"the adapter {files.adapter_name} does not fit the base {files.base_name}"),
    ):
        place = str(files.adapter)
        try:
            config = PeftConfig.from_pretrained(place)
        except KeyError as error:
            raise ValueError(f"PEFT knows no peft_type {error}") from None
        with safe_open(Path(place) / lora.WEIGHTS, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            trained = [file.get_tensor(name) for name in shapes if name.endswith(".lora_B.weight")]
        if trained and not any(each.any() for each in trained):
            logger.warning("the adapter %s changes nothing: every lora_B in it is zero", files.adapter_name)
        _check_vocabulary(base, shapes)
        names = set(shapes)
        if not merge:
            _check_beside(base, files, config, names)
        warnings.filterwarnings("ignore", "(?s).*tie_word_embeddings")  # they are untied where it matters
        # for merging in float32, for computing in the base's type
        tuned = PeftModel.from_pretrained(
            base, place, config=config, use_safetensors=True, autocast_adapter_dtype=merge
        )
        # the adapter must have all tensors that the base takes, and at most the base's embeddings beside them, as PEFT
        # saves them by default: it would ignore others and leave missing ones at their random initial values
        least, most = (set(get_peft_model_state_dict(tuned, save_embedding_layers=whole)) for whole in (False, True))
        if odd := (least - names) | (names - most):
            raise ValueError(f"{len(odd)} tensors are missing on one side, for example {min(odd)}")
        if merge:
            _untie(tuned.get_base_model())
        made: PreTrainedModel = tuned.merge_and_unload() if merge else tuned.get_base_model()
    return made


def _check_beside(base: PreTrainedModel, files: PrmFiles, config: Any, tensors: Iterable[str]) -> None:
    """Raises `ModelInvalid` unless an adapter is pairs of matrices for linear layers below the output."""
    from peft import LoraConfig

    plain, given = LoraConfig().to_dict(), config.to_dict()
    odd = {name for name, value in given.items() if value != plain.get(name)} - _BESIDE
    odd -= {"init_lora_weights"} if given.get("init_lora_weights") in (False, "gaussian") else set()
    output = [
        f"base_model.model.{name}." for name, module in base.named_modules() if module is base.get_output_embeddings()
    ]
    pairs = {name for name in tensors if name.endswith((".lora_A.weight", ".lora_B.weight"))}
    if odd := odd or {name for name in tensors if name not in pairs or name.startswith(tuple(output))}:
        raise ModelInvalid(
            f"{files.adapter_name} does not share its base with other adapters, for {min(odd)}: only LoRA of linear "
            "layers below the output does. Serve it alone: an --adapter without a name is merged"
        )


def _check_vocabulary(base: PreTrainedModel, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises `ValueError` if an adapter's tensors of these shapes have embeddings for another vocabulary."""
    layers = base.get_input_embeddings(), base.get_output_embeddings()
    places = tuple(f"base_model.model.{name}." for name, module in base.named_modules() if module in layers)
    rows = len(layers[0].weight)
    for name, shape in shapes.items():
        if name.startswith(places) and name.endswith(".weight") and ".lora_" not in name and shape[0] != rows:
            raise ValueError(
                f"its vocabulary was resized, {name} has {shape[0]} rows and the base {rows}: merge it with PEFT into "
                "the resized base, and give what that saves"
            )


def _untie(tuned: PreTrainedModel) -> None:
    """Gives the output layer its own weights where an adapter on it or on its twin, the embedding, would change
    both."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch.nn import Parameter

    layers = tuned.get_output_embeddings(), tuned.get_input_embeddings()
    output, embedding = (layer.get_base_layer() if isinstance(layer, BaseTunerLayer) else layer for layer in layers)
    if any(isinstance(layer, BaseTunerLayer) for layer in layers) and output.weight is embedding.weight:
        output.weight = Parameter(output.weight.detach().clone(), requires_grad=False)
        tuned.config.tie_word_embeddings = False
