"""What a frozen base makes of labelled steps: mean hidden states and figures of its surprise, in a pass over the texts.

They are in files of a directory, mapped into memory, since they can be larger than it. A killed pass goes on where it
was, with the same result.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from unprm.engines.torch.heads import margin_of
from unprm.engines.torch.probe import EVEN
from unprm.engines.torch.readers import log_probs
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.uncertainty import surprise

from .. import resumable
from ..schema import VERDICT
from .collate import Example, MicroBatch, in_order, micro_batches
from .network import Compute, Runner, compute_in_float32, unshared
from .readout import Features

KEPT = "states"
"""Folder of the states of training's steps in a probe's directory."""
STATES, FIGURES, PROGRESS = "states.npy", "measures.npy", "progress.json"
LARGEST = float(np.finfo(np.float16).max)


class Frozen(Runner):
    """A base of which nothing is trained. `factor`: a constant by which it multiplies its logits. Raises `ModelInvalid`
    if it changes them in another way."""

    def __init__(self, model: PreTrainedModel, compute: Compute) -> None:
        factor, _ = margin_of(model, Verdicts(0, 1))
        if compute.widens:
            compute_in_float32(model)
        super().__init__(model.eval().requires_grad_(False), compute)
        self.factor = factor


class States:
    """The hidden states of labelled steps, kept in a `directory`, in the order in which `base` takes the `examples`,
    which `Example.whole` made. `layers`, `measures`: what is kept. `identity`: JSON values of all else that the states
    depend on."""

    def __init__(
        self,
        directory: Path,
        examples: Sequence[Example],
        base: Frozen,
        layers: Sequence[int],
        measures: Sequence[str],
        identity: object,
    ) -> None:
        self._base = base
        self._sharing = unshared(base.model, max(len(example.encoded.ids) for example in examples)) is None
        self.examples = in_order(examples, self._sharing)
        self._directory, self._layers, self._measures = directory, tuple(layers), tuple(measures)
        self.labels: list[list[bool]] = [[label > VERDICT for label in _known(each)] for each in self.examples]
        self.count = sum(map(len, self.labels))
        hidden = base.model.config.get_text_config().hidden_size
        self._shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            STATES: ((len(layers), self.count, hidden), np.dtype(np.float16)),
            FIGURES: ((self.count, len(measures)), np.dtype(np.float32)),
        }
        self._fingerprint = self._digest(identity)

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * kind.itemsize for shape, kind in self._shapes.values())

    @property
    def problems(self) -> list[str]:
        return [example.problem for example, labels in zip(self.examples, self.labels, strict=True) for _ in labels]

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether each step is right, (steps,)."""
        return np.array(list(chain.from_iterable(self.labels)))

    @property
    def features(self) -> Features:
        states, figures = (np.load(self._directory / name, mmap_mode="r") for name in self._shapes)
        return Features(self._layers, states, figures)

    @property
    def _progress(self) -> Path:
        return self._directory / PROGRESS

    def reserve(self) -> int:
        """Makes room for the files, unless they are there; returns how many steps are done.

        Raises `ModelInvalid` if the disk has no room, or the files are those of another pass.
        """
        if all((self._directory / name).is_file() for name in (*self._shapes, PROGRESS)):
            progress = json.loads(self._progress.read_text("utf-8"))
            if progress["fingerprint"] != self._fingerprint:
                raise ModelInvalid(
                    f"{self._directory} has the states of a run with other settings or data, or another base by this "
                    "name; remove it, or choose another output directory"
                )
            return int(progress["steps"])
        self._directory.mkdir(parents=True, exist_ok=True)
        self._progress.unlink(missing_ok=True)
        check_room(self.bytes, shutil.disk_usage(self._directory).free, self._directory)
        for name, (shape, kind) in self._shapes.items():
            path = self._directory / name
            np.lib.format.open_memmap(path, "w+", kind, shape)
            with path.open("r+b") as file:
                # or a disk that fills up meanwhile would kill the process that writes to the mapped file
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        self._note(0)
        return 0

    def fill(self, tokens: int, advance: Callable[[int], None]) -> None:
        """Runs the base over what is missing, in passes of up to `tokens` tokens. `advance` is called after each pass,
        and for those done earlier, with the number of its texts' tokens. Raises `ModelInvalid` if memory runs out."""
        done = self.reserve()
        states, figures = (np.load(self._directory / name, mmap_mode="r+") for name in self._shapes)
        start = 0
        for micro in micro_batches(self.examples, tokens, self._base.kernels is not None, self._sharing):
            end = start + int((~micro.labels.isnan()).sum())
            if end > done:
                states[:, start:end], figures[start:end] = self._read(micro, tokens)
                states.flush()
                figures.flush()
                self._note(end)
            start = end
            advance(sum(micro.lengths))

    @torch.inference_mode()
    def _read(self, micro: MicroBatch, tokens: int) -> tuple[npt.NDArray[Any], list[list[float]]]:
        """The states, (layers, steps, hidden), and figures of the steps of a micro-batch."""
        model, device = self._base.model, next(self._base.model.parameters()).device
        try:
            made = self._base.run(micro, output_hidden_states=True)
        except torch.OutOfMemoryError as error:
            raise ModelInvalid(
                f"a pass of {tokens:,} tokens takes more memory than there is: give fewer by --batch-tokens"
            ) from error
        known = ~micro.labels.isnan()
        places, before, tags = micro.responses[known[micro.responses[:, 2]]].unbind(1)
        steps = (known.cumsum(0) - 1)[tags]
        count = int(known.sum())
        at, spans = places.to(device), steps.to(device)
        wanted = micro.ids.flatten()[places].to(device)
        with self._base.autocast(device):
            states = made.last_hidden_state.flatten(0, 1)[before.to(device)]
            logprobs = log_probs(model.get_output_embeddings(), states, wanted, self._base.factor)
        weights = EVEN - logprobs.float()
        weights = weights / torch.zeros(count, device=device).index_add(0, spans, weights)[spans]
        means = []
        for layer in self._layers:
            rows = made.hidden_states[layer].flatten(0, 1)[at].float() * weights[:, None]
            means.append(torch.zeros(count, rows.shape[1], device=device).index_add(0, spans, rows))
        kept = torch.stack(means).clamp(-LARGEST, LARGEST).half().cpu().numpy()
        sizes = torch.bincount(steps, minlength=count)
        figures = [surprise(each.tolist(), self._measures) for each in logprobs.cpu().split(sizes.tolist())]
        return kept, figures

    def _note(self, steps: int) -> None:
        resumable.replace(self._progress, json.dumps({"fingerprint": self._fingerprint, "steps": steps}) + "\n")

    def _digest(self, identity: object) -> str:
        made = hashlib.sha256(json.dumps([identity, self._layers, self._measures]).encode())
        for example in self.examples:
            known = [not math.isnan(label) for label in example.labels]
            made.update(repr((example.encoded.ids, example.encoded.positions, known)).encode())
        return made.hexdigest()


def check_room(needed: int, free: int, place: Path) -> None:
    """Raises `ModelInvalid` if a disk has fewer than the needed bytes free."""
    if needed > free:
        raise ModelInvalid(
            f"the states of {place} take {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free there"
        )


def _known(example: Example) -> Iterator[float]:
    return (label for label in example.labels if not math.isnan(label))
