"""Optimiser steps of the PRM trainer against TRL's PRMTrainer (up to 1.13), by turns on the same batches: a random
Qwen2 of 0.1 billion parameters, LoRA on all linear layers, bfloat16, the same token ids. `make benchmark-trl`."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoModelForTokenClassification, AutoTokenizer, PrinterCallback, TrainerCallback

from benchmarks.timing import Comparison, peak, timed
from benchmarks.training import trainer
from training.prm.collate import Example
from training.prm.train import Trainer
from training.settings import LINEAR
from unprm.engines.torch.memory import release_freed

SOLUTIONS, BATCH, EPOCHS = 32, 8, 3
"""`BATCH` solutions per optimiser step: TRL's default."""
VARIANTS: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("as both are by default", {}, True),
    ("neither with gradient checkpointing", {"gradient_checkpointing": False}, False),
    ("both with gradient checkpointing", {"gradient_checkpointing": True}, True),
    ("512 tokens a pass, TRL by default", {"batch_tokens": 512}, True),
    ("512 tokens a pass, gradient checkpointing", {"batch_tokens": 512, "gradient_checkpointing": True}, True),
)
"""A name, our options, and whether TRL computes activations twice."""


class ByTurns(TrainerCallback):  # type: ignore[misc]
    """After each step of TRL's trainer, ours takes the same one. `ours` and `theirs`: tokens a second of each."""

    def __init__(self, made: Trainer) -> None:
        self._trainer, self._batches = made, batches(made.examples)
        self._start = 0.0
        self.ours: list[float] = []
        self.theirs: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Before TRL's step."""
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """After TRL's step."""
        seconds = time.perf_counter() - self._start
        number = len(self.theirs)
        batch = self._batches[number % len(self._batches)]
        tokens = sum(len(example.encoded.ids) for example in batch)
        self.theirs.append(tokens / seconds)
        self.ours.append(tokens / timed(self._trainer.step, number, batch))


def batches(examples: Sequence[Example]) -> list[Sequence[Example]]:
    """The optimiser batches of both, in the order of the data."""
    return [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]


def run() -> list[Comparison]:
    """Compares tokens a second, padding not counted, and the peak memory above the model's."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    if find_spec("trl") is None or find_spec("trl.experimental.prm") is None:
        raise SystemExit("this benchmark needs TRL 1.13: make benchmark-trl")
    rows = []
    for name, options, twice in VARIANTS:
        baseline = "TRL's PRMTrainer"
        with _both(options) as (made, place):
            turns = ByTurns(made)
            _theirs(made, place, twice, EPOCHS, turns).train()
        # the first epoch also pays for what is compiled and allocated once
        ours, theirs = (rates[SOLUTIONS // BATCH :] for rates in (turns.ours, turns.theirs))
        rows.append(Comparison(f"training, {name}", median(ours), baseline, median(theirs), len(ours), "/s"))
        # each in a separate process, as memory freed by one could be reused by the other without being counted
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            peaks = pool.map(_peak, (options, options), (None, twice))
        rows.append(Comparison("the same, memory at most", next(peaks), baseline, next(peaks), unit="B"))
    return rows


def _peak(options: dict[str, Any], twice: bool | None) -> float:
    """Of an epoch of ours, or of TRL's where `twice` says how."""
    with _both(options) as (made, place):
        theirs = None if twice is None else _theirs(made, place, twice, 1)
        steps = list(enumerate(batches(made.examples)))
        release_freed()  # else what loading left behind would be used again without being counted
        return peak(theirs.train if theirs else lambda: [made.step(*step) for step in steps])


@contextmanager
def _both(options: dict[str, Any]) -> Iterator[tuple[Trainer, Path]]:
    with tempfile.TemporaryDirectory() as place:
        # as in TRL, no dropout by default
        yield trainer(Path(place), SOLUTIONS, batch_size=BATCH, lora_dropout=0.0, **options), Path(place)


def _theirs(made: Trainer, place: Path, twice: bool, epochs: int, *callbacks: TrainerCallback) -> Any:
    """TRL's trainer of the same base and data, with LoRA as in ours; its weights are in bfloat16, too."""
    from datasets import Dataset
    from trl.experimental.prm import PRMConfig, PRMTrainer

    rows = []
    for example in made.examples:
        labels = dict(zip(example.encoded.positions, example.labels, strict=True))
        ids = example.encoded.ids
        rows.append({"input_ids": list(ids), "labels": [int(labels.get(at, -100)) for at in range(len(ids))]})
    base, settings = place / "base", made.settings
    lora = LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules=list(LINEAR), task_type="TOKEN_CLS"
    )
    config = PRMConfig(
        output_dir=str(place / "trl"),
        num_train_epochs=epochs,
        gradient_checkpointing=twice,
        train_sampling_strategy="sequential",
        save_strategy="no",
        use_cpu=made.device.type == "cpu",
        report_to=[],
        disable_tqdm=True,
    )
    assert config.per_device_train_batch_size == BATCH
    theirs = PRMTrainer(
        model=AutoModelForTokenClassification.from_pretrained(base, num_labels=2, dtype=torch.bfloat16),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=lora,
        callbacks=list(callbacks),
    )
    theirs.remove_callback(PrinterCallback)  # it would print among our figures
    return theirs
