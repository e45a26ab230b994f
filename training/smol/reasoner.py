"""Fine-tunes the language model on right solutions, by a LoRA adapter: the reasoner, whose errors the PRM learns from.

A killed run resumes from its last state: the order of the data and the learning rate depend only on the seed and the
step number.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from rich.progress import Progress
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from unprm.engines.torch.quantized import computes_in_few_bits
from unprm.models.checkpoint import load_base, read_tokenizer

from ..prm import resume
from ..prm.network import with_adapter
from ..settings import TrainSettings
from .questions import WordProblem

SAVE_EVERY = 50
FEW_BITS = computes_in_few_bits(torch.device("cpu"))
_NOT_LEARNT = -100
"""The target of tokens of the problem, and of padding."""
_RESULT = re.compile(r"(?<== )[\d.,-]+|(?<==)[\d.,-]+")
"""What the calculator writes is not learnt."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Token ids of a problem and its solution with the end-of-text token, and for each the one to learn after it."""

    ids: list[int]
    targets: list[int]


@dataclass(frozen=True, slots=True)
class _Batch:
    """`ids`, (texts, length), padded on the right; `targets`, of the same shape, the next token of each."""

    ids: torch.Tensor
    targets: torch.Tensor


def fine_tune(base: Path, questions: Sequence[WordProblem], settings: TrainSettings, progress: Progress) -> Path:
    """Trains on the gold solutions of `questions`, after the problem and a line break; returns the directory of the
    model with the adapter merged in, in bfloat16, without a chat template. The adapter is beside it, in `adapter`."""
    output = settings.output
    model, adapter = output / "model", output / "adapter"
    if model.exists():
        return model
    tokenizer = read_tokenizer(base)
    tuned = with_adapter(load_base(base, torch.bfloat16 if FEW_BITS else torch.float32), settings).train()
    texts = [_encoded(question, tokenizer) for question in questions]
    _train(tuned, texts, settings, progress)
    tuned.save_pretrained(str(adapter), save_embedding_layers=False)
    merged = tuned.merge_and_unload()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(output / "model.partial")
    merged.to(torch.bfloat16).save_pretrained(output / "model.partial")
    (output / "model.partial").rename(model)
    return model


def _encoded(question: WordProblem, tokenizer: PreTrainedTokenizerBase) -> _Text:
    problem = tokenizer.encode(f"{question.problem}\n", add_special_tokens=False)
    solution = tokenizer(question.text, add_special_tokens=False, return_offsets_mapping=True)
    results = [found.span() for found in _RESULT.finditer(question.text)]
    learnt = [
        _NOT_LEARNT if any(first <= start and end <= last for first, last in results) else token
        for token, (start, end) in zip(solution["input_ids"], solution["offset_mapping"], strict=True)
    ]
    end = tokenizer.eos_token_id
    return _Text(
        [*problem, *solution["input_ids"], end], [*[_NOT_LEARNT] * (len(problem) - 1), *learnt, end, _NOT_LEARNT]
    )


def _train(tuned: PeftModel, texts: Sequence[_Text], settings: TrainSettings, progress: Progress) -> None:
    parameters = {name: p for name, p in tuned.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=0.0, weight_decay=0.0)
    state = settings.output / "reasoner.safetensors"
    settings.output.mkdir(parents=True, exist_ok=True)
    first = resume.load(state, parameters, [optimizer])["step"] if state.exists() else 0
    steps = list(_batches(texts, settings))
    task = progress.add_task("fine-tuning the reasoner", total=len(steps), completed=first)
    for step, batch in enumerate(steps[first:], first):
        loss = _loss(tuned, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step, len(steps))
        optimizer.step()
        optimizer.zero_grad()
        progress.update(task, advance=1, description=f"fine-tuning the reasoner, loss {loss.item():.3f}")
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == len(steps):
            resume.save(state, parameters, [optimizer], {"step": step + 1})


def _batches(texts: Sequence[_Text], settings: TrainSettings) -> Iterator[_Batch]:
    """Texts of like length together, at most `batch_tokens` with padding; each epoch has an order of its own."""
    for epoch in range(settings.epochs):
        rng = random.Random(f"{settings.seed}/{epoch}")
        shuffled = rng.sample(texts, len(texts))
        groups: list[list[_Text]] = [[]]
        for text in sorted(shuffled, key=_length):
            if groups[-1] and (len(groups[-1]) + 1) * _length(text) > (settings.batch_tokens or 0):
                groups.append([])
            groups[-1].append(text)
        rng.shuffle(groups)
        yield from map(_batch, groups)


def _length(text: _Text) -> int:
    return len(text.ids)


def _batch(group: Sequence[_Text]) -> _Batch:
    ids = [torch.tensor(text.ids) for text in group]
    targets = [torch.tensor(text.targets) for text in group]
    return _Batch(pad_sequence(ids, True), pad_sequence(targets, True, _NOT_LEARNT))


def _loss(tuned: PeftModel, batch: _Batch) -> torch.Tensor:
    """Mean cross-entropy of the solutions' tokens; only at these is the output layer computed, the costliest one."""
    model: PreTrainedModel = tuned.get_base_model()
    learnt = batch.targets != _NOT_LEARNT
    with torch.autocast("cpu", torch.bfloat16, enabled=FEW_BITS):
        hidden = model.get_decoder()(input_ids=batch.ids, use_cache=False).last_hidden_state
        logits = model.get_output_embeddings()(hidden[learnt])
    return functional.cross_entropy(logits.float(), batch.targets[learnt])
