"""Counts the bytes of the tensors that are alive."""

import weakref
from collections.abc import Iterable

import torch


class LiveBytes:
    """Bytes of the counted tensors: `now`, and `most` at any time so far. Tensors that share memory count once.

    `others`: tensors whose memory is not counted.
    """

    def __init__(self, others: Iterable[torch.Tensor] = ()) -> None:
        self.now = self.most = 0
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
        self.most = max(self.most, self.now)
