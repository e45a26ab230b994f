"""What vLLM must load to score as the torch engine does: a checkpoint, and overrides of its configuration.

A causal model becomes one with a single output, the difference of two rows of its output layer, or a value head. All
tokens are pooled and the scored rows picked here: vLLM's step tags look for ids in the wrong dimension of a causal
model.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock
from huggingface_hub import cached_assets_path
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from unprm.checkpoints.files import PrmFiles, load_merged, read_config, read_tokenizer
from unprm.engines.torch.heads import changed_logits, read_layers, tensor_names
from unprm.engines.vllm.pooled import classifies_tokens
from unprm.errors import ModelInvalid
from unprm.formats.family import Head, Readout, Verdicts


@dataclass(frozen=True, slots=True)
class VllmModel:
    """`overrides`: vLLM's `hf_overrides`; `logit_mean`, `logit_sigma`: subtracted from the output, and its divisor."""

    directory: Path
    overrides: dict[str, Any] = field(default_factory=dict)
    logit_mean: float | None = None
    logit_sigma: float | None = None

    @property
    def pooling(self) -> dict[str, Any]:
        scale = {"logit_mean": self.logit_mean, "logit_sigma": self.logit_sigma}
        given = {name: value for name, value in scale.items() if value is not None}
        return {"task": "token_classify", "tok_pooling_type": "ALL", **given}

    @property
    def convert(self) -> Literal["auto", "classify"]:
        return "classify" if self.overrides else "auto"

    @property
    def options(self) -> list[str]:
        """The options of `vllm serve DIRECTORY` that serve it."""
        options = ["--runner=pooling", f"--convert={self.convert}", f"--pooler-config={json.dumps(self.pooling)}"]
        return [*options, f"--hf-overrides={json.dumps(self.overrides)}"] if self.overrides else options


def prepare(files: PrmFiles, readout: Readout, tokenizer: Tokenizer, dtype: torch.dtype) -> VllmModel:
    """The model for vLLM. Merged adapters and renamed heads are kept in the hub's asset cache and reused. Raises
    `ModelInvalid` for a family that vLLM can't score."""
    if isinstance(readout, Verdicts):
        directory = files.base
        if files.adapter is not None:
            directory = _kept([files.base, files.adapter], f"{dtype} untied", lambda place: _merge(files, dtype, place))
        if classifies_tokens(directory):  # `unprm merge-adapter` made the head
            return VllmModel(directory)
        (architecture,) = read_config(directory)["architectures"]
        tokens = [tokenizer.id_to_token(token) for token in (readout.negative, readout.positive)]
        return VllmModel(
            directory,
            {
                "architectures": [architecture.replace("ForCausalLM", "ForSequenceClassification")],
                "classifier_from_token": tokens,
                "method": "from_2_way_softmax",
            },
            logit_sigma=None if readout.rows_alone else _divisor(directory),
        )
    if isinstance(readout, Head):
        is_known = len(readout.layers) > 1 or classifies_tokens(files.base)
        return VllmModel(files.base) if is_known else _with_value_head(files.base, readout)
    raise ModelInvalid("vLLM does not score models of this family: use --engine torch")


def _divisor(directory: Path) -> float | None:
    """What a model divides its logits by, or None. Raises `ModelInvalid` for anything else, as vLLM reads the rows."""
    config = read_config(directory)
    changed = changed_logits(config)
    if changed == "logits_scaling" and str(config.get("model_type")).startswith("granite"):
        return float(config[changed])
    biased = any(name.endswith(("lm_head.bias", "embed_out.bias")) for name in tensor_names(directory))
    if changed or biased:
        raise ModelInvalid(
            f"the model's logits have {changed or 'a bias'} beside its output layer, whose rows are all that vLLM "
            "reads: use --engine torch"
        )
    return None


def _with_value_head(base: Path, readout: Head) -> VllmModel:
    config = read_config(base)
    head = read_layers(base, readout, config["hidden_size"])
    (name,) = readout.layers

    def write(place: Path) -> None:
        for source in base.glob("*.safetensors"):
            tensors = load_file(source)
            kept = {key: tensor for key, tensor in tensors.items() if not key.startswith((name, "lm_head."))}
            row = {"score.weight": tensors[f"{name}.weight"]} if f"{name}.weight" in tensors else {}
            save_file(kept | row, place / source.name, {"format": "pt"})
        left_out = {"auto_map", "architectures", "id2label", "label2id"}
        new_config = {key: value for key, value in config.items() if key not in left_out}
        new_config |= {"architectures": ["Qwen2ForSequenceClassification"], "num_labels": 1}
        (place / "config.json").write_text(json.dumps(new_config), "utf-8")
        read_tokenizer(base).save_pretrained(place)

    return VllmModel(_kept([base], name, write), logit_mean=-head.bias)


def _merge(files: PrmFiles, dtype: torch.dtype, place: Path) -> None:
    load_merged(files, dtype).save_pretrained(place)
    read_tokenizer(files.base).save_pretrained(place)


def _kept(sources: Sequence[Path], variant: str, write: Callable[[Path], None]) -> Path:
    """The directory that `write` has filled for these sources, now or earlier."""
    digest = hashlib.sha256(variant.encode())
    for path in sorted(path for source in sources for path in source.resolve().iterdir() if path.is_file()):
        stat = path.stat()
        digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    place = Path(cached_assets_path("unprm", namespace="vllm", subfolder=digest.hexdigest()[:16]))
    fill(place, write)
    return place


def fill(place: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill an empty directory, all or nothing; whoever fills the same one meanwhile waits."""
    with FileLock(place.with_name(f"{place.name}.lock")):
        if not place.is_dir() or not any(place.iterdir()):
            partial = place.with_name(f"{place.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write(partial)
            partial.rename(place)  # atomic, also onto an empty directory
