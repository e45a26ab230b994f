"""The memory of this process: what a training run may take, and what tensors that are alive take."""

import ctypes
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path

import psutil
import torch


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a device; on a CPU at most what its container's limit leaves."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, left_to_container())


def left_to_container(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes left by a container's memory limit (control groups, version 2); `sys.maxsize` without a limit."""
    try:
        limit, used = (int((cgroup / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (cgroup / "memory.stat").read_text("ascii").splitlines())
        return limit - used + int(counts["inactive_file"])  # cached files count as used, but can be evicted
    except (OSError, ValueError):  # no such file, or "max"
        return sys.maxsize


def return_freed_memory() -> None:
    """Makes glibc return large freed blocks to the system at once. Otherwise it keeps holes between live blocks, half
    their size in total. The price: training small models takes twice as long."""
    if sys.platform == "linux" and hasattr(glibc := ctypes.CDLL(None), "mallopt"):
        glibc.mallopt(-3, 2**20)  # M_MMAP_THRESHOLD


class LiveBytes:
    """Bytes of the counted tensors: `now`, and their `peak` so far. Tensors that share memory count once.

    `others`: tensors whose memory is not counted.
    """

    def __init__(self, others: Iterable[torch.Tensor] = ()) -> None:
        self.now = self.peak = 0
        self._known = weakref.WeakSet(tensor.untyped_storage() for tensor in others)

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Counts these tensors from now on, until their memory is freed."""
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if storage not in self._known:
                self._known.add(storage)
                self._change(storage.nbytes())
                weakref.finalize(storage, self._change, -storage.nbytes())

    def _change(self, size: int) -> None:
        self.now += size
        self.peak = max(self.peak, self.now)
