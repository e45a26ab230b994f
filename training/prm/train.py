"""Trains a PRM: a LoRA adapter on a causal language model, from step-labelled solutions.

    python -m training train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-prm
    torchrun --nproc-per-node 8 -m training train …

If the same command is given again, a killed run resumes from its last checkpoint, with the same result: data order,
dropout and schedule depend only on the seed and the step number. Several processes share each optimiser batch, so their
losses equal those of a single process.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from rich.progress import Progress
from safetensors import safe_open
from torch.utils.tensorboard import SummaryWriter
from transformers import PreTrainedConfig
from transformers.utils import is_flash_attn_2_available

from training.evaluate.metrics import Validation
from training.layouts.files import read_labelled
from training.layouts.label import VERDICT
from training.prm import resume
from training.prm.card import write_card
from training.prm.collate import Example, MicroBatch, batches, micro_batches
from training.prm.heads import add_head, write_head
from training.prm.history import History
from training.prm.loss import LOSSES
from training.prm.memory import MemoryPlan, free_memory, plan, return_freed_memory
from training.prm.network import (
    base_dtype,
    check_sharing,
    computes_in_bf16,
    hidden_states,
    read_shape,
    with_adapter,
)
from training.prm.processes import Processes
from training.settings import LayoutName, TrainSettings, TrainSummary
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.models.checkpoint import fetch, load_base, load_tokenizer

STATE = "checkpoint.safetensors"
CHOSEN = ("batch_tokens", "gradient_checkpointing")
"""The settings that are chosen by the free memory unless given."""


class Trainer:
    """One training run: the constructor loads data and model, `run` trains."""

    def __init__(self, settings: TrainSettings) -> None:
        self.loss = LOSSES[settings.loss]
        self.processes = Processes.join()
        self.device = self.processes.device
        free = self.processes.smallest(free_memory(self.device) // self.processes.sharing)
        base = fetch(settings.base, settings.base_revision)
        tokenizer = load_tokenizer(base)
        self.config = PrmConfig.for_base(
            tokenizer,
            settings.name or settings.output.name,
            _portable(settings.base, settings.output),
            settings.base_revision,
            settings.problem_template,
            settings.step_tag,
            settings.positive,
            settings.negative,
        ).model_copy(update={"head": settings.head, "beta": settings.beta})
        self.format = UnprmFormat(tokenizer, self.config)
        flash = is_flash_attn_2_available() and not settings.share_prefixes
        self.packing = flash if settings.packing is None else settings.packing
        shape = read_shape(str(base))
        self.examples, self.dropped = self._read(settings.data, settings.layout, shape.max_position_embeddings)
        self.held_out: list[Example] = []
        if settings.validation:
            self.held_out, _ = self._read(settings.validation, None, shape.max_position_embeddings)
        self.memory = self._plan(settings, shape, free)
        self.settings = replace(settings, **{name: getattr(self.memory, name) for name in CHOSEN})
        if self.memory.scarce and self.device.type == "cpu":
            return_freed_memory()
        model = load_base(base, base_dtype(self.settings, self.device.type))
        if settings.share_prefixes:
            check_sharing(model, max(len(example.encoded.ids) for example in (*self.examples, *self.held_out)))
        if flash:
            model.set_attn_implementation("flash_attention_2")
        self.model = with_adapter(model, self.settings, self.device.type)
        self.in_bf16 = computes_in_bf16(settings, self.device.type)
        verdicts = Verdicts(self.config.positive_id, self.config.negative_id)
        self.head = add_head(self.model, settings, verdicts, self.in_bf16)
        self.model.to(self.device)
        self.head.module.to(self.device)
        decoder = model.get_decoder()
        self.decoder = torch.compile(decoder, dynamic=True) if settings.compile else decoder
        self.optimizer = torch.optim.AdamW(self._trained().values(), lr=0.0, weight_decay=0.0)
        self.per_epoch = -(-len(self.examples) // settings.batch_size)
        self.total = settings.epochs * self.per_epoch
        self.history = History()
        self.fingerprint = self._fingerprint()

    def run(self, progress: Progress) -> TrainSummary:
        """Trains, resuming from the last checkpoint if any; writes the adapter, its configuration and its card."""
        self.settings.output.mkdir(parents=True, exist_ok=True)
        first = self._resume()
        name = self.config.name
        task = progress.add_task(f"training {name}", total=self.total, completed=first)
        with SummaryWriter(str(self.settings.output / "tensorboard"), purge_step=first) as board:
            for step, batch in self._batches(first):
                if self.history.is_over(self.settings.patience):
                    break
                loss = self.step(step, batch)
                self.history.losses.append(loss)
                board.add_scalar("loss", loss, step + 1)
                progress.update(task, advance=1, description=f"training {name}, loss {loss:.4f}")
                if (step + 1) % self.per_epoch == 0:
                    self._validate(board)
                if (step + 1) % self.settings.checkpoint_every == 0 or (step + 1) % self.per_epoch == 0:
                    self._save()
        steps = len(self.history.losses)
        summary = TrainSummary(len(self.examples), self.dropped, steps, self.history.recent_loss())
        if self.processes.is_first:
            self._finish(summary)
        self.processes.wait()
        return summary

    def _read(self, paths: Sequence[Path], layout: LayoutName | None, window: int) -> tuple[list[Example], int]:
        solutions = list(read_labelled(paths, layout))
        examples = [Example.of(s, self.format.encode(s.problem, s.steps)) for s in solutions]
        examples = [example for example in examples if len(example.encoded.ids) <= window]
        if not examples:
            names = ", ".join(map(str, paths))
            raise ModelInvalid(f"nothing to train on: {len(solutions)} solutions in {names}, none fits {window} tokens")
        return examples, len(solutions) - len(examples)

    def _plan(self, settings: TrainSettings, shape: PreTrainedConfig, free: int) -> MemoryPlan:
        """Chooses the settings in `CHOSEN` that are not given, or takes them from this run's checkpoint."""
        state = settings.output / STATE
        if state.exists() and (kept := resume.read_progress(state).get("memory")):
            settings = replace(settings, **{name: kept[name] for name in CHOSEN if getattr(settings, name) is None})
        longest = max(len(example.encoded.ids) for example in self.examples)
        return plan(shape, settings, self.device.type, free, longest)

    def _trained(self) -> dict[str, torch.Tensor]:
        named = *self.model.named_parameters(), *self.head.module.named_parameters("head")
        return {name: p for name, p in named if p.requires_grad}

    def _batches(self, first: int) -> Iterator[tuple[int, list[Example]]]:
        step, s = 0, self.settings
        problems = [example.problem for example in self.examples]
        for epoch in range(s.epochs):
            for indices in batches(problems, s.batch_size, epoch, s.seed, s.share_prefixes):
                if step >= first:
                    yield step, [self.examples[index] for index in indices]
                step += 1

    def step(self, step: int, batch: Sequence[Example]) -> float:
        """Optimiser step number `step`, from 0, on a batch; returns its mean loss."""
        total = sum(self.loss.count(example.labels) for example in batch)
        loss = torch.zeros(1, device=self.device)
        for number, micro in enumerate(self._micro_batches(batch)):
            if number % self.processes.count == self.processes.rank:
                # the same dropout for these solutions in any process
                torch.manual_seed((self.settings.seed * 1_000_003 + step) * 4099 + number)
                labels, solutions = micro.labels.to(self.device), micro.solutions.to(self.device)
                part = self.loss(self._margins(micro), labels, solutions, total)
                part.backward()
                loss += part.detach()
        trained = self._trained().values()
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.processes.add_up([loss, *(parameter.grad for parameter in trained if parameter.grad is not None)])
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(step, self.total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def _validate(self, board: SummaryWriter) -> None:
        """Evaluates the held-out solutions, and saves the adapter if it is the best so far."""
        if not self.held_out:
            return
        scores, labels = self._scored(self.held_out)
        validations = self.history.validations
        validations.append(Validation.of(scores, labels))
        for name, value in asdict(validations[-1]).items():
            if value is not None:
                board.add_scalar(f"validation/{name}", value, len(self.history.losses))
        if self.history.best() == len(validations) - 1 and self.processes.is_first:
            resume.replace_file(self._trained(), self._place("best.safetensors"), {})

    @torch.no_grad()
    def _scored(self, examples: Sequence[Example]) -> tuple[list[list[float]], list[list[bool]]]:
        self.model.eval()
        scores, labels = [], []
        for micro in self._micro_batches(examples):
            values = torch.sigmoid(self._margins(micro)).cpu()
            for number in micro.solutions.unique():
                scores.append(values[micro.solutions == number].tolist())
                labels.append((micro.labels[micro.solutions == number] > VERDICT).tolist())
        self.model.train()
        return scores, labels

    def _micro_batches(self, examples: Sequence[Example]) -> Iterator[MicroBatch]:
        return micro_batches(examples, self.memory.batch_tokens, self.packing, self.settings.share_prefixes)

    def _margins(self, micro: MicroBatch) -> torch.Tensor:
        states = partial(hidden_states, self.decoder, micro, self.device, self.in_bf16)
        return self.head.margins(states, micro)

    def _fingerprint(self) -> str:
        """Digest of everything the result depends on, to detect checkpoints of other runs."""
        elsewhere = "output", "checkpoint_every", "data", "layout"
        settings = {k: str(v) for k, v in asdict(self.settings).items() if k not in elsewhere}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for example in self.examples:
            digest.update(repr((example.encoded, example.labels)).encode())
        return digest.hexdigest()

    def _place(self, name: str) -> Path:
        return self.settings.output / name

    def _resume(self) -> int:
        """Restores the last checkpoint, if any; returns the number of the next step."""
        state = self._place(STATE)
        if not state.exists():
            return 0
        kept = resume.load(state, self._trained(), [self.optimizer])
        if kept["fingerprint"] != self.fingerprint:
            raise ModelInvalid(f"{state} belongs to a run with other settings or data; choose another output directory")
        self.history = History.of(kept["history"])
        return len(self.history.losses)

    def _save(self) -> None:
        if self.processes.is_first:
            state = {
                "history": asdict(self.history),
                "fingerprint": self.fingerprint,
                "memory": {name: getattr(self.settings, name) for name in CHOSEN},
            }
            resume.save(self._place(STATE), self._trained(), [self.optimizer], state)
            self.history.write(self.settings.output)
        self.processes.wait()

    def _finish(self, summary: TrainSummary) -> None:
        output = self.settings.output
        if self.settings.patience and self.history.validations:
            with safe_open(self._place("best.safetensors"), framework="pt") as best:
                for name, parameter in self._trained().items():
                    parameter.data.copy_(best.get_tensor(name))
        self.model.peft_config["default"].base_model_name_or_path = self.config.base
        self.model.save_pretrained(str(output), save_embedding_layers=False)
        write_head(self.head, output)
        self.config.write(output)
        write_card(output, self.config, self.settings, summary)


def _portable(base: str, output: Path) -> str:
    """The base's name in the adapter's configuration: a path relative to the adapter, or the hub name."""
    if not Path(base).is_dir():
        return base
    relative = os.path.relpath(Path(base).resolve(), output.resolve())
    return relative if relative.startswith(".") else f"./{relative}"
