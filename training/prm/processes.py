"""Data-parallel training: each process started by `torchrun` computes its share of every optimiser batch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import distributed

from unprm.engines.torch.devices import Gpu, pick_device


@dataclass(frozen=True, slots=True)
class Processes:
    """This process: its `rank` among `count` processes, and its device."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def join(cls) -> Self:
        """Joins the process group if `torchrun` started this process; otherwise it is the only one. Raises
        `ModelInvalid` if PyTorch can't use the machine's GPU."""
        cuda = pick_device("auto", Gpu.find()) == "cuda"
        if not distributed.is_torchelastic_launched():
            return cls(0, 1, torch.device("cuda" if cuda else "cpu"))
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if cuda else "gloo")
        device = torch.device("cuda", distributed.get_node_local_rank()) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    def leave(self) -> None:
        if self.count > 1:
            distributed.destroy_process_group()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def sharing(self) -> int:
        """Number of processes that share this process's device: 1 on a GPU, all of this machine's on a CPU."""
        return 1 if self.count == 1 or self.device.type == "cuda" else int(os.environ["LOCAL_WORLD_SIZE"])

    def smallest(self, number: int) -> int:
        if self.count == 1:
            return number
        least = torch.tensor(number, device=self.device)
        distributed.all_reduce(least, distributed.ReduceOp.MIN)
        return int(least)

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each tensor, of any shape, by its sum over all processes."""
        if self.count == 1:
            return
        works = [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    def wait(self) -> None:
        if self.count > 1:
            distributed.barrier()
