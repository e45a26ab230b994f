"""All stages that make the embedded model: tokenizer, generator, labelled solutions, PRM adapter.

Each stage writes its result to the output directory and is skipped if it exists, so a killed run can resume.
"""

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.progress import Progress
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from research.mini.checker import labels
from training import resumable
from training.prm.train import Trainer
from training.prm.train_settings import LINEAR, TrainSettings
from training.schema import LabelledSolution
from unprm import mini, steps
from unprm.checkpoints import lora
from unprm.checkpoints.files import load_base, read_tokenizer
from unprm.mini.storyteller import generate

from . import corpus
from . import tokenizer as mini_tokenizer
from .pretrain import PretrainSettings, pretrain
from .sample import sample
from .slips import Author


@dataclass(frozen=True, slots=True)
class MiniSettings:
    """Sizes of the stages; `sampled`: pairs of a sampling temperature and a number of problems."""

    seed: int = 0
    tokenizer_documents: int = 8000
    pretrain: PretrainSettings = field(default_factory=PretrainSettings)
    sampled: tuple[tuple[float, int], ...] = ((0.8, 4608), (1.2, 3072))
    planted: int = 4080
    carelessness: tuple[float, float] = (0.5, 2.0)
    prm_epochs: int = 2


def make(output: Path, settings: MiniSettings, progress: Progress) -> Path:
    """Makes the model in `output`; returns the adapter's directory, next to which the base is."""
    output.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(output, settings)
    base = _reasoner(output, tokenizer, replace(settings.pretrain, seed=settings.seed), progress)
    data = [_planted(output, settings), *_sampled(output, base, settings, progress)]
    return _prm(output, base, data, settings, progress)


def _tokenizer(output: Path, settings: MiniSettings) -> PreTrainedTokenizerBase:
    place = output / "tokenizer"
    if not place.exists():
        rng = random.Random(f"{settings.seed}/tokenizer")
        texts = (piece.text for _ in range(settings.tokenizer_documents) for piece in corpus.document(rng))
        mini_tokenizer.train(texts).save_pretrained(place)
    return read_tokenizer(place)


def _reasoner(output: Path, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, progress: Progress) -> Path:
    """Pretrains a generator in `output`, or resumes its pretraining; returns the directory of the model in bf16."""
    base = output / "base"
    if not base.exists():
        output.mkdir(parents=True, exist_ok=True)
        model = pretrain(tokenizer, settings, output, progress)
        tokenizer.save_pretrained(output / "base.partial")
        model.to(torch.bfloat16).save_pretrained(output / "base.partial")
        (output / "base.partial").rename(base)
    return base


def _planted(output: Path, settings: MiniSettings) -> Path:
    """Solutions by authors of varying carelessness, labelled by the exact checker."""
    path = output / "planted.jsonl"
    if not path.exists():
        rng = random.Random(f"{settings.seed}/planted")
        solutions = []
        for _ in range(settings.planted):
            problem = generate(rng)
            written = Author(rng, rng.uniform(*settings.carelessness)).solve(problem)
            solutions.append(LabelledSolution(problem.text, tuple(written), tuple(labels(problem, written))))
        resumable.write_lines(path, solutions)
    return path


def _sampled(output: Path, base: Path, settings: MiniSettings, progress: Progress) -> Iterator[Path]:
    """The generator's own solutions, labelled by the exact checker; one file per temperature."""
    for number, (temperature, count) in enumerate(settings.sampled):
        path = output / f"sampled-{temperature:g}.jsonl"
        _sample_into(path, base, temperature, count, settings.seed + (number + 1) * 10**6, progress)
        yield path


def _sample_into(path: Path, base: Path, temperature: float, count: int, seed: int, progress: Progress) -> None:
    rng = random.Random(f"{seed}/problems")
    # sorted by length, so that the solutions of a batch end at about the same time
    problems = sorted((generate(rng) for _ in range(count)), key=lambda problem: len(problem.operations))
    done = sum(1 for _ in path.open()) if path.exists() else 0
    task = progress.add_task(f"sampling at temperature {temperature:g}", total=count, completed=done)
    if done == count:
        return
    model, tokenizer = load_base(base, torch.bfloat16), read_tokenizer(base)
    texts = sample(model, tokenizer, [p.text for p in problems[done:]], temperature, seed + done)
    with path.open("a", encoding="utf-8") as file:
        for batch in texts:
            for problem, text in zip(problems[done:], batch, strict=False):
                parts = steps.split(text) or [text]
                record = {"problem": problem.text, "steps": parts, "labels": labels(problem, parts)}
                file.write(json.dumps(record) + "\n")
            file.flush()
            done += len(batch)
            progress.update(task, completed=done)


def _prm(output: Path, base: Path, data: list[Path], settings: MiniSettings, progress: Progress) -> Path:
    adapter = output / "adapter"
    train = TrainSettings(
        base=str(base),
        data=tuple(data),
        output=adapter,
        name=mini.NAME,
        lora_rank=12,
        lora_alpha=24,
        lora_dropout=0.0,
        held_out=0.0,
        lora_targets=LINEAR,
        seed=settings.seed,
        epochs=settings.prm_epochs,
        batch_size=128,
        batch_tokens=10240,
        bf16=True,
        compile=True,
    )
    Trainer(train).train(progress)
    _halve(adapter)
    return adapter


def _halve(adapter: Path) -> None:
    """Rewrites an adapter's weights in bfloat16."""
    weights = adapter / lora.WEIGHTS
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(weights).items()}
    partial = weights.with_suffix(".partial")
    save_file(halved, partial, {"format": "pt"})
    os.replace(partial, weights)
