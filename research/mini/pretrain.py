"""Pretrains the generator of the embedded model on the generated corpus.

Resumable: the state is saved every `SAVE_EVERY` steps, and data and schedule depend only on the seed and the step
number, so a killed run continues as if it had not been interrupted.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from rich.progress import Progress
from torch.nn import functional
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM
from transformers.modeling_outputs import BaseModelOutputWithPast

from training.prm.loss import LOSSES
from training.prm.processes import Processes
from training.prm.resume import RunState
from training.prm.train_settings import warmed_cosine
from unprm.formats.unprm import NEGATIVE, POSITIVE

from . import corpus
from .corpus import Document

SAVE_EVERY = 100
LENGTHS = (96, 128, 160, 192, 224, 256, 352)
"""Documents are padded to one of these, so that few shapes have to be compiled."""
EARLY_EXIT = 5
"""After this layer, the next token must already be predicted..."""
REVIEW_EXIT = 7
"""... and after this one, right tokens must be told from wrong ones, by comparison with that prediction; the last layer
only has to collect this at the step's tag."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One learning-rate cycle: linear warm-up, then cosine decay to a hundredth of the peak."""

    mixture: corpus.Mixture
    steps: int
    peak: float
    warmup: int

    def rate(self, step: int) -> float:
        """Learning rate at a step of the cycle, counted from 0."""
        return warmed_cosine(step, self.steps, self.warmup, self.peak, floor=0.01)


@dataclass(frozen=True, slots=True)
class PretrainSettings:
    """`tokens`: batch size in tokens, padding included."""

    cycles: tuple[Cycle, ...] = (
        Cycle(corpus.RIGHT, steps=3300, peak=4e-3, warmup=100),
        Cycle(corpus.CARELESS, steps=700, peak=2e-3, warmup=30),
    )
    tokens: int = 10240
    seed: int = 0

    @property
    def steps(self) -> int:
        return sum(cycle.steps for cycle in self.cycles)


def architecture(tokenizer: PreTrainedTokenizerBase) -> Qwen2Config:
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


def _batches(
    tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, first: int
) -> Iterator[tuple[float, int, list[Document]]]:
    """Yields learning rate, padded length and documents of each step, from step `first` on."""
    for number, cycle in enumerate(settings.cycles):
        if first < cycle.steps:
            made = corpus.batches(tokenizer, cycle.mixture, f"{settings.seed}/{number}", settings.tokens, LENGTHS)
            for step, (length, documents) in enumerate(itertools.islice(made, first, cycle.steps), first):
                yield cycle.rate(step), length, documents
        first = max(0, first - cycle.steps)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Fields as in `Document`, each of shape (documents, length).

    Empty rows fill a batch up to the token budget, so that few shapes have to be compiled.
    """

    ids: torch.Tensor
    learned: torch.Tensor
    judged: torch.Tensor
    wrong: torch.Tensor
    tag: torch.Tensor
    right: torch.Tensor


def _collate(documents: list[Document], length: int, tokens: int) -> _Batch:
    shape = (tokens // length, length)
    batch = _Batch(
        ids=torch.zeros(shape, dtype=torch.long),
        learned=torch.zeros(shape, dtype=torch.bool),
        judged=torch.zeros(shape),
        wrong=torch.zeros(shape),
        tag=torch.zeros(shape, dtype=torch.bool),
        right=torch.zeros(shape),
    )
    for row, document in enumerate(documents):
        for field in fields(_Batch):
            getattr(batch, field.name)[row, : len(document.ids)] = torch.tensor(getattr(document, field.name))
    return batch


class _Loss:
    """The loss of a batch: next tokens at the early exit and at the last layer, the review of each token, and the PRM's
    loss at the tags. `judge`, an extra output row, is used only for the review and not kept."""

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self.judge = torch.nn.Parameter(torch.zeros(model.config.hidden_size))
        self.positive, self.negative = (
            tokenizer.encode(text, add_special_tokens=False)[0] for text in (POSITIVE, NEGATIVE)
        )

    def __call__(self, states: BaseModelOutputWithPast, batch: _Batch) -> torch.Tensor:
        norm, last = self.model.model.norm, states.last_hidden_state
        text = self._foresight(norm(states.hidden_states[EARLY_EXIT]), batch) + self._foresight(last, batch)
        return text + self._review(norm(states.hidden_states[REVIEW_EXIT]), batch) + self._verdicts(last, batch)

    def _foresight(self, hidden: torch.Tensor, batch: _Batch) -> torch.Tensor:
        """Mean cross-entropy of the learned tokens; `hidden`: (documents, length, width)."""
        learned = batch.learned[:, 1:]
        logits = self.model.lm_head(hidden[:, :-1][learned]).float()  # (learned tokens, vocabulary)
        return functional.cross_entropy(logits, batch.ids[:, 1:][learned])

    def _review(self, hidden: torch.Tensor, batch: _Batch) -> torch.Tensor:
        judged = batch.judged > 0
        margins = hidden[judged].float() @ self.judge
        losses = functional.binary_cross_entropy_with_logits(margins, batch.wrong[judged], reduction="none")
        return losses @ batch.judged[judged] / batch.judged.sum()

    def _verdicts(self, last: torch.Tensor, batch: _Batch) -> torch.Tensor:
        rows = self.model.lm_head.weight
        margins = last[batch.tag].float() @ (rows[self.positive] - rows[self.negative])
        return LOSSES["bce"](margins, batch.right[batch.tag], batch.tag.nonzero()[:, 0], max(1, len(margins)))


def _optimizers(parameters: Mapping[str, torch.nn.Parameter]) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in parameters.items() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in parameters.items() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def pretrain(
    tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, directory: Path, progress: Progress
) -> Qwen2ForCausalLM:
    """Trains the generator, or resumes from the state in `directory`; returns it in fp32.

    Appends a line `{"step", "loss", "seconds"}` every ten steps to `directory/pretrain.jsonl`.
    """
    torch.manual_seed(settings.seed)
    model = Qwen2ForCausalLM._from_config(architecture(tokenizer), attn_implementation="eager")
    loss_of = _Loss(model, tokenizer)
    parameters = dict(model.named_parameters()) | {"judge": loss_of.judge}
    optimizers = _optimizers(parameters)
    state, first = RunState(directory / "pretrain.safetensors", Processes.join()), 0
    if progress_so_far := state.progress():
        state.load(parameters, optimizers)
        first = progress_so_far["step"]
    body: Callable[..., BaseModelOutputWithPast] = torch.compile(model.model, dynamic=False)
    task = progress.add_task("pretraining", total=settings.steps, completed=first)
    start, recent = time.monotonic(), []
    for step, (rate, length, documents) in enumerate(_batches(tokenizer, settings, first), first):
        batch = _collate(documents, length, settings.tokens)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(body(input_ids=batch.ids, use_cache=False, output_hidden_states=True), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
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
            state.save(parameters, optimizers, {"step": step + 1})
    return model
