"""An optimiser step of the PRM trainer, against a plain one (batches padded in data order, logits of the whole
vocabulary), with a random Qwen2 of 0.1 billion parameters, Qwen2.5's 151,936 tokens, LoRA, and the same solutions."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks import models, queries
from benchmarks.timing import Comparison, compare, peak
from training import resumable
from training.prm.collate import Example
from training.prm.train import Trainer
from training.prm.train_settings import LINEAR, TrainSettings
from training.schema import LabelledSolution

SOLUTIONS, PLAIN_BATCH = 8, 8
SHAPE = models.SMALL | {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "max_position_embeddings": 32_768,
}


def plain_step(trainer: Trainer, batch: Sequence[Example]) -> None:
    """The step of a plain trainer, with the same model and optimizer."""
    tags = sum(len(example.labels) for example in batch)
    for start in range(0, len(batch), PLAIN_BATCH):
        part = batch[start : start + PLAIN_BATCH]
        length = max(len(example.encoded.ids) for example in part)
        ids = torch.zeros(len(part), length, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, example in enumerate(part):
            ids[row, : len(example.encoded.ids)] = torch.tensor(example.encoded.ids)
            mask[row, : len(example.encoded.ids)] = 1
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.compute.autocast):
            logits = trainer.network.model(
                input_ids=ids.to(trainer.device), attention_mask=mask.to(trainer.device)
            ).logits
        logits = logits.float()
        loss = torch.zeros((), device=trainer.device)
        for row, example in enumerate(part):
            tag_logits = logits[row, list(example.encoded.positions)]
            margins = tag_logits[:, trainer.config.positive_id] - tag_logits[:, trainer.config.negative_id]
            wanted = torch.tensor(example.labels, dtype=torch.float, device=trainer.device)
            loss = loss + functional.binary_cross_entropy_with_logits(margins, wanted, reduction="sum") / tags
        loss.backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def comparisons() -> list[Comparison]:
    """Compares the time of one optimiser step, and its peak memory above the model's."""
    with tempfile.TemporaryDirectory() as place:
        made = trainer(Path(place))
    batch = made.examples
    tokens = sum(len(example.encoded.ids) for example in batch)
    what, baseline = f"a step of {len(batch)} solutions, {tokens} tokens, bf16", "padded, all logits"
    taken = compare(what, lambda: made.step(0, batch), baseline, lambda: plain_step(made, batch), rounds=3)
    # each in a separate process, as memory freed by one could be reused by the other without being counted
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        ours, plain = pool.map(_peak, (False, True))
    return [taken, Comparison("the same, memory at most", ours, baseline, plain, unit="B")]


def trainer(place: Path, solutions: Sequence[LabelledSolution] | None = None, **options: Any) -> Trainer:
    """Our trainer with LoRA on all linear layers and bf16. It reads the model from `place/base`, which is written."""
    base, data = models.write(place / "base", SHAPE), place / "data.jsonl"
    resumable.write_lines(data, solutions or queries.labelled(0, SOLUTIONS))
    fixed: dict[str, Any] = {
        "base": str(base),
        "data": (data,),
        "output": place / "prm",
        "lora_targets": LINEAR,
        "bf16": True,
    }
    return Trainer(TrainSettings(**(fixed | options)))


def _peak(plainly: bool) -> float:
    with tempfile.TemporaryDirectory() as place:
        made = trainer(Path(place))
    return peak((lambda: plain_step(made, made.examples)) if plainly else (lambda: made.step(0, made.examples)))
