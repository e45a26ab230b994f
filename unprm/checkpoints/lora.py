"""Merges plain adapters, LoRA of linear layers and nothing else, without PEFT, whose import takes about as long as
loading a small model. All others are merged by PEFT."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

from unprm.errors import ModelInvalid

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_VALUES: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "init_lora_weights": (True, False),  # some other values change the base
}
_WITHOUT_EFFECT = {
    "base_model_name_or_path",
    "inference_mode",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
}
"""Fields that do not affect what is merged, whatever their values."""
ALL_LINEAR = "all-linear"
"""PEFT's word for all linear layers but the output."""
_NAMING = re.compile(r"modules|pattern|parameters")
"""In the names of the fields in which PEFT takes texts for layers' names or, most of them, for regular expressions."""
_NAME = re.compile(r"\^?[\w.-]+")
"""A layer's name, or its end; one in full may begin with `^`."""


def merge_plain(network: PreTrainedModel, directory: Path) -> bool:
    """Merges the adapter into the network if it is plain and fits, layer by layer and rounded as PEFT does; else
    changes nothing. Returns whether it merged. Raises `SafetensorError` if the weights can't be read."""
    try:
        config = json.loads((directory / CONFIG).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    if not _is_plain(config):
        return False
    rank, scale = config["r"], config["lora_alpha"] / config["r"]
    endings = tuple(f".{name}" for name in config["target_modules"])
    targets = {name: layer for name, layer in network.named_modules() if f".{name}".endswith(endings)}
    layers = {name: layer for name, layer in targets.items() if type(layer) is nn.Linear}
    if not layers or len(layers) < len(targets):
        return False
    shapes: dict[str, list[int]] = {}
    for name, layer in layers.items():
        inner, outer = _names(name)
        shapes |= {inner: [rank, layer.in_features], outer: [layer.out_features, rank]}
    with safe_open(directory / WEIGHTS, framework="pt") as file, torch.no_grad():
        if set(file.keys()) != shapes.keys():
            return False
        if any(file.get_slice(name).get_shape() != shape for name, shape in shapes.items()):
            return False
        for name, layer in layers.items():
            inner, outer = (file.get_tensor(factor).float() for factor in _names(name))
            layer.weight += (outer @ inner) * scale
    return True


def refuse_patterns(directory: Path) -> None:
    """Raises `ModelInvalid` if the adapter in a directory, if there is one, chooses layers by regular expressions: one
    alone can keep the process busy for ever, and nothing could stop it."""
    try:
        config = json.loads((directory / CONFIG).read_text("utf-8"))
    except (OSError, ValueError):
        return
    for field in config if isinstance(config, dict) else ():
        if _NAMING.search(field) and not all(map(_NAME.fullmatch, _texts(config[field]))):
            raise ModelInvalid(
                f"{directory / CONFIG}: {field} has a pattern, and patterns are not evaluated: list the layers' "
                f"names, or write {ALL_LINEAR}"
            )


def base(directory: Path) -> tuple[str, str | None]:
    """The base that an adapter's configuration names, and its revision; raises `ModelInvalid` if it names none."""
    path = directory / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        name, revision = config["base_model_name_or_path"], config.get("revision")
    except (OSError, ValueError, LookupError, TypeError):
        name, revision = None, None
    if not isinstance(name, str) or not isinstance(revision, str | None):
        raise ModelInvalid(
            f"{path} has no base_model_name_or_path: give the base with --model, and --adapter and --family"
        )
    return name, revision or None


def _is_plain(config: Any) -> bool:
    """Whether the configuration gives only the adapted layers, their rank and their scale."""
    if not isinstance(config, dict):
        return False
    others = config.keys() - _VALUES.keys() - _WITHOUT_EFFECT - {"r", "lora_alpha", "target_modules"}
    return (
        isinstance(config.get("r"), int)
        and config["r"] > 0
        and isinstance(config.get("lora_alpha"), int | float)
        and isinstance(config.get("target_modules"), list)
        and all(config.get(field) in values for field, values in _VALUES.items())
        and not any(config[field] for field in others)
    )


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(part)


def _names(layer: str) -> tuple[str, str]:
    """Names of a layer's factors, of shapes (rank, inputs) and (outputs, rank)."""
    return f"base_model.model.{layer}.lora_A.weight", f"base_model.model.{layer}.lora_B.weight"
