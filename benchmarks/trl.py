"""Optimiser steps of the PRM trainer against TRL's PRMTrainer (up to 1.13), by turns on the same batches: a random
Qwen2 of 0.1 billion parameters, LoRA on all linear layers, bfloat16, the same token ids; solutions of the embedded
domain, and PRM800K's alternatives. `make benchmark-trl`."""

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
from typing import Any, NamedTuple

import torch
from peft import LoraConfig
from transformers import AutoModelForTokenClassification, AutoTokenizer, PrinterCallback, TrainerCallback

from benchmarks import queries
from benchmarks.timing import Comparison, peak, timed
from benchmarks.training import trainer
from training.layouts.files import read_labelled
from training.prm.collate import Example
from training.prm.train import Trainer
from training.settings import LINEAR
from unprm.engines.torch.memory import release_freed

BATCH, EPOCHS = 8, 3
"""`BATCH` solutions per optimiser step: TRL's default."""
ALTERNATIVES = Path(__file__).parents[1] / "tests/data/layouts/prm800k-alternatives.jsonl.gz"


class Variant(NamedTuple):
    """`options` of ours, and whether TRL computes activations `twice`. `real`: the solutions are PRM800K's."""

    name: str
    options: dict[str, Any]
    twice: bool
    real: bool = False


VARIANTS = (
    Variant("as both are by default", {}, True),
    Variant("neither with gradient checkpointing", {"gradient_checkpointing": False}, False),
    Variant("both with gradient checkpointing", {"gradient_checkpointing": True}, True),
    Variant("512 tokens a pass, TRL by default", {"batch_tokens": 512}, True),
    Variant("512 tokens a pass, gradient checkpointing", {"batch_tokens": 512, "gradient_checkpointing": True}, True),
    Variant("PRM800K's alternatives", {}, True, True),
    Variant("the same, shared prefixes", {"share_prefixes": True}, True, True),
    Variant("the same, neither with gradient checkpointing", {"share_prefixes": True}, False, True),
)


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
    for variant in VARIANTS:
        baseline = "TRL's PRMTrainer"
        with _both(variant) as (made, place):
            turns = ByTurns(made)
            _theirs(made, place, variant.twice, EPOCHS, turns).train()
        # the first epoch also pays for what is compiled and allocated once
        ours, theirs = (rates[len(rates) // EPOCHS :] for rates in (turns.ours, turns.theirs))
        rows.append(Comparison(f"training, {variant.name}", median(ours), baseline, median(theirs), len(ours), "/s"))
        # each in a separate process, as memory freed by one could be reused by the other without being counted
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            peaks = pool.map(_peak, (variant, variant), (False, True))
        rows.append(Comparison("the same, memory at most", next(peaks), baseline, next(peaks), unit="B"))
    return rows


def _peak(variant: Variant, of_theirs: bool) -> float:
    """Of an epoch of ours, or of TRL's."""
    with _both(variant) as (made, place):
        theirs = _theirs(made, place, variant.twice, 1) if of_theirs else None
        steps = list(enumerate(batches(made.examples)))
        release_freed()  # else what loading left behind would be used again without being counted
        return peak(theirs.train if theirs else lambda: [made.step(*step) for step in steps])


@contextmanager
def _both(variant: Variant) -> Iterator[tuple[Trainer, Path]]:
    solutions = list(read_labelled([ALTERNATIVES], None))[:64] if variant.real else queries.labelled(0, 32)
    with tempfile.TemporaryDirectory() as place:
        # as in TRL, no dropout by default
        yield trainer(Path(place), solutions, batch_size=BATCH, lora_dropout=0.0, **variant.options), Path(place)


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
