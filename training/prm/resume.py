"""What a training run keeps on disk: the state from which a killed run resumes, and a journal for whoever watches.

The state is one safetensors file, which is replaced atomically: a run after a crash sees the old state or the new one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from unprm.checkpoints.files import digests

from .. import resumable
from .collate import Example
from .processes import Processes
from .train_settings import TrainSettings

STATE = "checkpoint.safetensors"
"""The last state, in a run's output directory."""
Parameters = Mapping[str, torch.Tensor]


def fingerprint(settings: TrainSettings, examples: Sequence[Example], base: Path) -> str:
    """Digest of everything that a run's result depends on, to detect states of other runs. `base`: the directory of the
    base model."""
    elsewhere = "output", "checkpoint_every", "data", "layout", "batch_tokens", "gradient_checkpointing"
    values = {k: str(v) for k, v in asdict(settings).items() if k not in elsewhere}
    digest = hashlib.sha256(json.dumps([values, digests(base)], sort_keys=True).encode())
    for example in examples:
        digest.update(repr((example.encoded, example.labels)).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run, which every process has: the file `path`, written by the first."""

    path: Path
    processes: Processes

    def progress(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        with safe_open(self.path, framework="pt") as file:
            progress: dict[str, Any] = json.loads(file.metadata()["progress"])
        return progress

    def save(
        self, parameters: Parameters, optimizers: list[torch.optim.Optimizer], progress: Mapping[str, Any]
    ) -> None:
        """Saves the trained parameters, the optimizers' moments, and the run's `progress` (JSON values); all processes
        call this."""
        if self.processes.is_first:
            with resumable.replacing(self.path) as file:
                save_file(_tensors(parameters, optimizers), file.name, {"progress": json.dumps(progress)})
        self.processes.wait()

    def load(self, parameters: Parameters, optimizers: list[torch.optim.Optimizer]) -> None:
        states: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
        with safe_open(self.path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (not a mapping)
                kind, _, rest = name.partition("/")
                if kind == "parameter":
                    parameters[rest].data.copy_(file.get_tensor(name))
                else:
                    number, index, moment = rest.split("/")
                    states[int(number)].setdefault(int(index), {})[moment] = file.get_tensor(name)
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _tensors(parameters: Parameters, optimizers: list[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    tensors = {f"parameter/{name}": tensor.detach() for name, tensor in parameters.items()}
    for number, optimizer in enumerate(optimizers):
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{index}/{name}": moments[name] for name in moments}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


STEPS, VALIDATIONS = "train.jsonl", "validation.jsonl"
"""A row for each optimiser step, and for each epoch."""


class TrainingJournal:
    """A run's rows of optimiser steps and of epochs in its directory `output`. It begins with the rows of the `steps`
    that earlier runs took."""

    def __init__(self, output: Path, steps: Sequence[Mapping[str, Any]]) -> None:
        self.output = output
        _write(output / STEPS, steps)

    def step(self, row: Mapping[str, Any]) -> None:
        with (self.output / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def validated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the validations so far, before the training and after each epoch."""
        _write(self.output / VALIDATIONS, rows)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
