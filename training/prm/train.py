"""Trains a PRM from step-labelled solutions: a LoRA adapter on a causal language model, or all its weights.

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-prm
    torchrun --nproc-per-node 8 -m unprm train …

If the same command is given again, a killed run resumes from its last checkpoint, with the same result: data order and
schedule depend only on the seed and the step number, dropout also on the size of passes, which the checkpoint keeps.
Several processes share each optimiser batch, so their losses equal those of a single process.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from statistics import fmean
from typing import Any

import torch
from rich.progress import Progress

from unprm.checkpoints.files import fetch, load_base, load_tokenizer
from unprm.engines.torch.devices import multiplies_bf16_fast
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig, UnprmFormat

from ..evaluate.metrics import Validation
from ..schema import VERDICT
from .collate import Example, MicroBatch, batches, hold_out, micro_batches, read_examples
from .loss import LOSSES
from .memory import free_memory, guess
from .network import Compute, Network, make_head, prepare, read_shape
from .processes import Processes
from .publish import check_output, portable, write_adapter, write_all, write_card
from .resume import STATE, RunState, TrainingJournal, fingerprint
from .train_settings import TrainSettings, TrainSummary

CHOSEN = ("batch_tokens", "gradient_checkpointing")
"""The settings that are chosen by the free memory unless given."""

FEW_STEPS = 50
"""Optimiser steps below which a run is told that it learns little: the paper's takes 470."""


class Trainer:
    """One training run: the constructor loads data and model, `train` trains. `processes`: this process among those of
    the run; by default what `torchrun` says, if it started this one. Raises `OutputMismatch` if the output directory
    holds a PRM of another kind."""

    def __init__(self, settings: TrainSettings, processes: Processes | None = None) -> None:
        check_output(settings)
        self.settings = settings
        self.loss = LOSSES[settings.loss]
        self.processes = processes or Processes.join()
        self.device = self.processes.device
        self.compute = Compute.of(settings, self.device.type, multiplies_bf16_fast(self.device))
        self.base = fetch(settings.base, settings.base_revision)
        tokenizer = load_tokenizer(self.base)
        self.config = PrmConfig.for_base(
            tokenizer,
            settings.name or settings.output.name,
            portable(settings.base, settings.output),
            settings.base_revision,
            problem_template=settings.problem_template,
            step_tag=settings.step_tag,
            positive=settings.positive,
            negative=settings.negative,
            head=settings.head,
        )
        self.format = UnprmFormat(tokenizer, self.config)
        window = read_shape(str(self.base)).max_position_embeddings
        self.examples, self.dropped = read_examples(settings.data, settings.layout, self.format, window)
        self.held_out, self.dropped_held_out = read_examples(settings.validation, None, self.format, window)
        if not settings.validation:
            self.examples, self.held_out = hold_out(self.examples, settings.held_out, settings.seed)
        self.state = RunState(settings.output / STATE, self.processes)
        bf16 = self.compute.autocast if settings.bf16 is None else settings.bf16
        self.settings = replace(settings, bf16=bf16, **self._kept())
        self.network = self._load().to(self.device)
        longest = max(len(example.encoded.ids) for example in self.examples)
        free = self.processes.smallest(free_memory(self.device) // self.processes.sharing)
        self.memory = guess(self.network, self.settings, free, longest)
        self.batch_tokens = self.memory.batch_tokens
        if self.memory.gradient_checkpointing:
            # the reentrant variant would need a gradient at the first layer's input
            self.network.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.settings = replace(self.settings, **{name: getattr(self.memory, name) for name in CHOSEN})
        # fused, it needs no memory of its own
        fused = settings.tune == "all"
        self.optimizer = torch.optim.AdamW(self._trained().values(), lr=0.0, weight_decay=0.0, fused=fused)
        self.per_epoch = -(-len(self.examples) // settings.batch_size)
        self.total = settings.epochs * self.per_epoch
        self.steps: list[dict[str, Any]] = []
        self.validations: list[Validation] = []
        self.fingerprint = fingerprint(self.settings, self.examples, self.base)

    def train(self, progress: Progress) -> TrainSummary:
        """Trains, resuming from the last checkpoint if any; writes the weights, their configuration and card, and a
        journal meanwhile."""
        self.settings.output.mkdir(parents=True, exist_ok=True)
        first = self._resume()
        journal = TrainingJournal(self.settings.output, self.steps) if self.processes.is_first else None
        if not first:
            self._validate(progress, journal)
        left = list(self._batches(first))
        total = self.settings.epochs * _tokens(self.examples)
        done = total - sum(_tokens(batch) for _, batch in left)
        # from a token less, so that the time left is known after a single pass
        task = progress.add_task(self._title(), total=total, completed=done - 1)
        progress.update(task, completed=done)
        for step, batch in left:

            def show(tokens: int, before: int = done) -> None:
                progress.update(task, completed=before + tokens)

            started, size = time.perf_counter(), self.batch_tokens
            loss = self.step(step, batch, show)
            done += _tokens(batch)
            if journal and self.batch_tokens < size:
                progress.console.print(f"out of memory: passes of up to {self.batch_tokens:,} tokens from now on")
            row = {
                "step": step + 1,
                "loss": loss,
                "learning_rate": self.settings.rate(step, self.total),
                "tokens": _tokens(batch),
                "batch_tokens": self.batch_tokens,
                "seconds": round(time.perf_counter() - started, 3),
            }
            self.steps.append(row)
            if journal:
                journal.step(row)
            progress.update(task, completed=done, description=self._title())
            over = (step + 1) % self.per_epoch == 0
            if over:
                self._validate(progress, journal)
            if over or (step + 1) % self.settings.checkpoint_every == 0:
                self._save()
        recent = [row["loss"] for row in self.steps[-max(1, len(self.steps) // 10) :]]
        summary = TrainSummary(
            len(self.examples), self.dropped, len(self.steps), fmean(recent), self.validations, len(self.held_out)
        )
        self._finish(summary)
        self.processes.wait()
        return summary

    def plan(self) -> str:
        solutions = f"{len(self.examples):,} solutions, {self.settings.batch_size} a step"
        lines = [f"{self.total:,} optimiser steps: {self.settings.epochs} epochs of {solutions}"]
        if self.total < FEW_STEPS:
            lines.append("that is few: a probe (--tune none --head probe) suits few labels, or a smaller --batch-size")
        if self.held_out:
            lines.append(f"{len(self.held_out):,} solutions are held out")
        return "\n".join([str(self.memory), *lines])

    def _validate(self, progress: Progress, journal: TrainingJournal | None) -> None:
        if not self.held_out:
            return
        self.validations.append(Validation.of(*self._scored(self.held_out)))
        if journal:
            rows = [{"epoch": number, **asdict(each)} for number, each in enumerate(self.validations)]
            journal.validated(rows)
            when = f"after epoch {rows[-1]['epoch']}" if self.steps else "untrained"
            progress.console.print(f"held out, {when}: {self.validations[-1]}", highlight=False, soft_wrap=True)

    def _title(self) -> str:
        loss = f", loss {self.steps[-1]['loss']:.4f}" if self.steps else ""
        return f"training {self.config.name}, step {len(self.steps)} of {self.total}{loss}, tokens"

    def _load(self) -> Network:
        model = load_base(self.base, self.compute.base)
        tuned = prepare(model, self.settings, self.compute)
        if self.settings.compile:
            model.get_decoder().compile(dynamic=True)
        verdicts = Verdicts(self.config.positive_id, self.config.negative_id)
        return Network(tuned, make_head(tuned, self.settings, verdicts), self.compute)

    def _kept(self) -> dict[str, Any]:
        """The settings in `CHOSEN` that are not given, as this run's checkpoint has them, if there is one."""
        progress = self.state.progress()
        return {k: v for k, v in progress["memory"].items() if getattr(self.settings, k) is None} if progress else {}

    def _trained(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

    def _batches(self, first: int) -> Iterator[tuple[int, list[Example]]]:
        epochs, size, seed = range(self.settings.epochs), self.settings.batch_size, self.settings.seed
        drawn = chain.from_iterable(batches(len(self.examples), size, epoch, seed) for epoch in epochs)
        for step, indices in islice(enumerate(drawn), first, None):
            yield step, [self.examples[index] for index in indices]

    def step(self, step: int, batch: Sequence[Example], computed: Callable[[int], None] = lambda tokens: None) -> float:
        """Optimiser step number `step`, from 0, on a batch; returns its mean loss. `computed` is called after each pass
        with the number of the batch's tokens so far. If memory runs out, the step begins anew with passes half as
        large, which it has from then on; raises `ModelInvalid` if a single solution is too large."""
        while (loss := self._passes(step, batch, computed)) is None:
            self.optimizer.zero_grad()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
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

    def _passes(self, step: int, batch: Sequence[Example], computed: Callable[[int], None]) -> torch.Tensor | None:
        """This process's share of the loss of an optimiser step, (1,), whose gradient is added to the parameters'; None
        if memory ran out in some process."""
        total = sum(self.loss.count(example.labels) for example in batch)
        loss = torch.zeros(1, device=self.device)
        tokens, done = self.batch_tokens, 0
        numbered = list(enumerate(self._micro_batches(batch)))[self.processes.rank :: self.processes.count]
        for number, micro in numbered:
            # the same dropout for these solutions in any process
            torch.manual_seed((self.settings.seed * 1_000_003 + step) * 4099 + number)
            try:
                loss += self._pass(micro, total)
            except torch.OutOfMemoryError as error:
                if len(micro.lengths) == 1:
                    raise ModelInvalid(
                        f"a pass over one solution of {micro.lengths[0]:,} tokens takes more memory than there is: "
                        "train with gradient checkpointing, a smaller base, or without such solutions"
                    ) from error
                tokens //= 2
                break
            done += sum(micro.lengths)
            computed(min(done * self.processes.count, _tokens(batch)))
        self.batch_tokens, before = self.processes.smallest(tokens), self.batch_tokens
        return loss if self.batch_tokens == before else None

    def _pass(self, micro: MicroBatch, total: int) -> torch.Tensor:
        """The loss of a micro-batch, whose gradient is added to the parameters', of a batch with `total` parts."""
        with self.compute.products():
            part = self.loss(self.network(micro), micro.labels.to(self.device), micro.solutions.to(self.device), total)
            part.backward()
        return part.detach()

    @torch.no_grad()
    def _scored(self, examples: Sequence[Example]) -> tuple[list[list[float]], list[list[bool]]]:
        self.network.eval()
        scores, labels = [], []
        for micro in self._micro_batches(examples):
            with self.compute.products():
                values = torch.sigmoid(self.network(micro)).cpu()
            for number in micro.solutions.unique():
                scores.append(values[micro.solutions == number].tolist())
                labels.append((micro.labels[micro.solutions == number] > VERDICT).tolist())
        self.network.train()
        return scores, labels

    def _micro_batches(self, examples: Sequence[Example]) -> Iterator[MicroBatch]:
        return micro_batches(examples, self.batch_tokens, packing=self.network.kernel is not None)

    def _resume(self) -> int:
        """Restores the last checkpoint, if any; returns the number of the next step."""
        if (progress := self.state.progress()) is None:
            return 0
        if progress["fingerprint"] != self.fingerprint:
            raise ModelInvalid(
                f"{self.state.path} belongs to a run with other settings or data, or another base by this name; choose "
                "another output directory"
            )
        self.state.load(self._trained(), [self.optimizer])
        self.steps = progress["history"]["steps"]
        self.validations = [Validation(**figures) for figures in progress["history"]["validations"]]
        return len(self.steps)

    def _save(self) -> None:
        progress = {
            "history": {"steps": self.steps, "validations": [asdict(each) for each in self.validations]},
            "fingerprint": self.fingerprint,
            "memory": {
                "batch_tokens": self.batch_tokens,
                "gradient_checkpointing": self.settings.gradient_checkpointing,
            },
        }
        self.state.save(self._trained(), [self.optimizer], progress)

    def _finish(self, summary: TrainSummary) -> None:
        output = self.settings.output
        if not self.processes.is_first:
            return
        if self.settings.tune == "all":
            write_all(self.network, self.base, self.config, output)
        else:
            write_adapter(self.network, self.config, output)
        write_card(output, self.config, self.settings, summary)


def _tokens(examples: Sequence[Example]) -> int:
    return sum(len(example.encoded.ids) for example in examples)
