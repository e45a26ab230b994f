"""Pretrains the reasoner of the embedded model on the generated corpus.

Resumable: the state is written every `SAVE_EVERY` steps; data and schedule depend on the seed and the step
number alone, so a run that was killed goes on as if it had not been.
"""

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from rich.progress import Progress
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.modeling_outputs import BaseModelOutputWithPast

from training import checkpoint
from training.mini import corpus
from training.mini.corpus import Document

SAVE_EVERY = 100
MULTIPLE = 64
"""Lengths are padded to a multiple of this."""
EARLY_EXIT = 5
"""After this layer the next token has to be foreseen already: the layers above are left to compare what was
foreseen with what was written, which is how a step is checked."""


@dataclass(frozen=True, slots=True)
class PretrainSettings:
    """`tokens` is the size of a batch in tokens, padding included."""

    solving_steps: int = 1000
    foreseeing_steps: int = 300
    reviewing_steps: int = 1500
    polishing_steps: int = 240
    tokens: int = 10240
    learning_rate: float = 4e-3
    polishing_rate: float = 1e-3
    warmup: int = 100
    seed: int = 0

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return self._cosine_steps + self.polishing_steps

    @property
    def _cosine_steps(self) -> int:
        return self.solving_steps + self.foreseeing_steps + self.reviewing_steps

    def rate(self, step: int) -> float:
        """Learning rate of a step: linear warm-up, a cosine down to a hundredth of the peak; then, for the
        polishing, linearly from its own rate to zero."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        if step >= self._cosine_steps:
            return self.polishing_rate * (1 - (step - self._cosine_steps) / self.polishing_steps)
        done = (step - self.warmup) / max(1, self._cosine_steps - self.warmup)
        return self.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def architecture(tokenizer: PreTrainedTokenizerFast) -> Qwen2Config:
    """Qwen2 with 8 layers of width 256: 5.4M parameters, 10.8 MB in bf16."""
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def _batches(tokenizer: PreTrainedTokenizerFast, settings: PretrainSettings, first: int) -> Iterator[list[Document]]:
    """The batches of all parts of the corpus, from step `first` on."""
    seed = settings.seed
    for mixture, name, steps in (
        (corpus.SOLVING, f"{seed}", settings.solving_steps),
        (corpus.FORESEEING, f"{seed}/reviewing", settings.foreseeing_steps),
        (corpus.REVIEWING, f"{seed}/token by token", settings.reviewing_steps),
        (corpus.POLISHING, f"{seed}/polishing", settings.polishing_steps),
    ):
        made = corpus.batches(tokenizer, mixture, name, settings.tokens, MULTIPLE)
        if first < steps:
            yield from itertools.islice(made, first, steps)
        first = max(0, first - steps)


@dataclass(frozen=True, slots=True)
class _Batch:
    """All of shape (documents, length); the last four as in `Document`.

    Empty rows fill a batch up to the token budget, so that few shapes have to be compiled.
    """

    ids: torch.Tensor
    last: torch.Tensor
    early: torch.Tensor
    review: torch.Tensor
    wrong: torch.Tensor


def _collate(documents: list[Document], tokens: int) -> _Batch:
    length = -(-max(len(document.ids) for document in documents) // MULTIPLE) * MULTIPLE
    shape = (max(len(documents), tokens // length), length)
    batch = _Batch(
        torch.zeros(shape, dtype=torch.long),
        torch.zeros(shape),
        torch.zeros(shape),
        torch.zeros(shape),
        torch.zeros(shape, dtype=torch.bool),
    )
    for row, document in enumerate(documents):
        for field in fields(_Batch):
            getattr(batch, field.name)[row, : len(document.ids)] = torch.tensor(getattr(document, field.name))
    return batch


class _Loss:
    """The loss of a batch: next tokens at the last layer and the early exit, and the review of each token."""

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model = model
        self.verdicts = torch.tensor(
            [tokenizer.encode(f" {word}", add_special_tokens=False)[0] for word in ("right", "wrong")]
        )

    def __call__(self, states: BaseModelOutputWithPast, batch: _Batch) -> torch.Tensor:
        last = states.last_hidden_state
        loss = self._mean(last[:, :-1], batch.ids[:, 1:], batch.last[:, 1:])
        if batch.early.any():
            early = self.model.model.norm(states.hidden_states[EARLY_EXIT])
            loss = loss + self._mean(early[:, :-1], batch.ids[:, 1:], batch.early[:, 1:])
        if batch.review.any():
            loss = loss + self._mean(last, self.verdicts[batch.wrong.long()], batch.review)
        return loss

    def _mean(self, hidden: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted mean cross-entropy; `hidden` (documents, length, width), the others (documents, length)."""
        counted = weights > 0
        logits = self.model.lm_head(hidden[counted]).float()  # (counted tokens, vocabulary)
        losses = functional.cross_entropy(logits, targets[counted], reduction="none")
        return losses @ weights[counted] / weights.sum()


def _optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def pretrain(
    tokenizer: PreTrainedTokenizerFast, settings: PretrainSettings, directory: Path, progress: Progress
) -> Qwen2ForCausalLM:
    """Trains the reasoner, or goes on from the state in `directory`; returns it in fp32.

    Appends a line `{"step", "loss", "seconds"}` per ten steps to `directory/pretrain.jsonl`.
    """
    torch.manual_seed(settings.seed)
    model = Qwen2ForCausalLM._from_config(architecture(tokenizer), attn_implementation="eager")
    optimizers = _optimizers(model)
    parameters = dict(model.named_parameters())
    state = directory / "pretrain.safetensors"
    first = checkpoint.load(state, parameters, optimizers)["step"] if state.exists() else 0
    body: Callable[..., BaseModelOutputWithPast] = torch.compile(model.model, dynamic=False)
    loss_of = _Loss(model, tokenizer)
    task = progress.add_task("pretraining", total=settings.steps, completed=first)
    start, recent = time.monotonic(), []
    for step, documents in enumerate(_batches(tokenizer, settings, first), first):
        batch = _collate(documents, settings.tokens)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(body(input_ids=batch.ids, use_cache=False, output_hidden_states=True), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = settings.rate(step)
            optimizer.step()
            optimizer.zero_grad()
        recent.append(loss.item())
        progress.update(task, advance=1, description=f"pretraining, loss {recent[-1]:.3f}")
        if len(recent) == 10:
            line = {"step": step + 1, "loss": sum(recent) / 10, "seconds": round(time.monotonic() - start, 1)}
            with (directory / "pretrain.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            recent.clear()
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == settings.steps:
            checkpoint.save(state, parameters, optimizers, {"step": step + 1})
    return model
