"""Training state on disk, from which a killed run resumes.

Either one safetensors file or, for sharded weights, a directory with one of each process. Both are replaced atomically:
a run after a crash sees the old or the new state, never a part.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from .collate import Example
from .processes import Processes
from .settings import TrainSettings

Parameters = Mapping[str, torch.Tensor]


def fingerprint(settings: TrainSettings, examples: Sequence[Example]) -> str:
    """Digest of everything that a run's result depends on, to detect states of other runs."""
    elsewhere = "output", "checkpoint_every", "data", "layout"
    values = {k: str(v) for k, v in asdict(settings).items() if k not in elsewhere}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for example in examples:
        digest.update(repr((example.encoded, example.labels)).encode())
    return digest.hexdigest()


def replace_file(tensors: Parameters, path: Path, metadata: Mapping[str, str]) -> None:
    """Replaces the file at `path` atomically."""
    partial = path.with_suffix(".partial")
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, partial, dict(metadata))
    _to_disk(partial)
    os.replace(partial, path)


@dataclass(frozen=True, slots=True)
class OneFile:
    """The state of an adapter, which every process has: the file `path`, written by the first."""

    path: Path
    processes: Processes

    def progress(self) -> dict[str, Any] | None:
        """The `progress` of the saved state, if there is one."""
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
            replace_file(_tensors(parameters, optimizers), self.path, {"progress": json.dumps(progress)})
        self.processes.wait()

    def load(self, parameters: Parameters, optimizers: list[torch.optim.Optimizer]) -> None:
        """Restores parameters and optimizers; the state exists."""
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


@dataclass(frozen=True, slots=True)
class Shards:
    """The state of all weights, of which every process may have a shard: the directory `path`, where the saved state is
    the directory with the highest number. Another number of processes can load it."""

    path: Path
    processes: Processes

    def progress(self) -> dict[str, Any] | None:
        """The `progress` of the saved state, if there is one."""
        numbers = self._numbers()
        if not numbers:
            return None
        progress: dict[str, Any] = json.loads((self._place(numbers[-1]) / "progress.json").read_text("utf-8"))
        return progress

    def save(
        self, parameters: Parameters, optimizers: list[torch.optim.Optimizer], progress: Mapping[str, Any]
    ) -> None:
        """As `OneFile.save`; each process writes its shards."""
        partial = self.path / "partial"
        if self.processes.is_first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        self.processes.wait()
        writer = HuggingFaceStorageWriter(str(partial), save_distributed=True)
        with _single_process_is_meant():
            state_dict_saver.save(_tensors(parameters, optimizers), storage_writer=writer, no_dist=self._alone)
        self.processes.wait()
        if self.processes.is_first:
            (partial / "progress.json").write_text(json.dumps(progress), "utf-8")
            _to_disk(partial / "progress.json")
            numbers = self._numbers()
            os.replace(partial, self._place(max(numbers, default=-1) + 1))
            for number in numbers:
                shutil.rmtree(self._place(number))
        self.processes.wait()

    def load(self, parameters: Parameters, optimizers: list[torch.optim.Optimizer]) -> None:
        """Restores parameters and optimizers (of Adam's kind); the state exists. All processes call this."""
        for optimizer in optimizers:
            moments = {
                index: {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
                for index, parameter in enumerate(optimizer.param_groups[0]["params"])
            }
            optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        reader = HuggingFaceStorageReader(str(self._place(self._numbers()[-1])))
        with _single_process_is_meant():
            state_dict_loader.load(_tensors(parameters, optimizers), storage_reader=reader, no_dist=self._alone)

    def _numbers(self) -> list[int]:
        return sorted(int(place.name) for place in self.path.glob("*") if place.name.isdigit())

    def _place(self, number: int) -> Path:
        return self.path / str(number)

    @property
    def _alone(self) -> bool:
        return self.processes.count == 1


def _tensors(parameters: Parameters, optimizers: list[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Parameters and moments by their names in a saved state."""
    tensors = {f"parameter/{name}": tensor.detach() for name, tensor in parameters.items()}
    for number, optimizer in enumerate(optimizers):
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{index}/{name}": moments[name] for name in moments}
    return tensors


@contextmanager
def _single_process_is_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
