"""Training state on disk: one safetensors file, replaced atomically, from which a killed run resumes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def replace_file(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Replaces `path` atomically: a reader, or a run after a crash, sees the old or the new file, never a part."""
    partial = path.with_suffix(".partial")
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, partial, dict(metadata))
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def save(
    path: Path,
    parameters: Mapping[str, torch.Tensor],
    optimizers: list[torch.optim.Optimizer],
    progress: Mapping[str, Any],
) -> None:
    """Saves the trained parameters, the optimizers' moments, and the run's `progress` (JSON values)."""
    tensors = {f"parameter/{name}": tensor for name, tensor in parameters.items()}
    for number, optimizer in enumerate(optimizers):
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{index}/{name}": moments[name] for name in moments}
    replace_file(tensors, path, {"progress": json.dumps(progress)})


def read_progress(path: Path) -> dict[str, Any]:
    """The `progress` of a saved state."""
    with safe_open(path, framework="pt") as file:
        progress: dict[str, Any] = json.loads(file.metadata()["progress"])
    return progress


def load(path: Path, parameters: Mapping[str, torch.Tensor], optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    """Restores parameters and optimizers from a saved state; returns its `progress`."""
    states: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  (not a mapping)
            kind, _, rest = name.partition("/")
            if kind == "parameter":
                parameters[rest].data.copy_(file.get_tensor(name))
            else:
                number, index, moment = rest.split("/")
                states[int(number)].setdefault(int(index), {})[moment] = file.get_tensor(name)
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return read_progress(path)
