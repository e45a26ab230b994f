"""Trains a PRM: a LoRA adapter on a causal language model, from step-labelled solutions.

    python -m training train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-prm

A run that was killed goes on from its last checkpoint when the same command is given again, to the same
result: the order of the data, the dropout and the schedule depend on the seed and the step number alone.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rich.progress import Progress
from transformers import PreTrainedModel

from training import checkpoint, records
from training.card import write_card
from training.collate import Example, MicroBatch, batches, micro_batches
from training.loss import step_bce
from training.settings import TrainReport, TrainSettings
from unprm.engines.load import fetch, load_base, load_tokenizer
from unprm.errors import ModelInvalid
from unprm.formats.unprm import PrmConfig, UnprmFormat


class Trainer:
    """One training run; `run` does all of it."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        base = fetch(settings.base, settings.base_revision)
        tokenizer = load_tokenizer(base)
        self.config = PrmConfig.for_base(
            tokenizer,
            settings.name or settings.output.name,
            _portable(settings.base, settings.output),
            settings.base_revision,
            settings.problem_template,
        )
        self.format = UnprmFormat(tokenizer, self.config)
        model = load_base(base, torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        self.examples, self.dropped = self._read(model.config.max_position_embeddings)
        self.model = self._with_adapter(model).to(self.device)
        self._prepare_forward()
        self.optimizer = torch.optim.AdamW(self._trained().values(), lr=0.0, weight_decay=0.0)
        self.total = settings.epochs * -(-len(self.examples) // settings.batch_size)
        self.state = settings.output / "checkpoint.safetensors"
        self.log = settings.output / "train.jsonl"
        self.fingerprint = self._fingerprint()

    def run(self, progress: Progress) -> TrainReport:
        """Trains, or goes on from the last checkpoint; writes the adapter, its configuration and its card."""
        self.settings.output.mkdir(parents=True, exist_ok=True)
        first, losses = self._resume()
        task = progress.add_task("training", total=self.total, completed=first)
        for step, batch in self._batches(first):
            losses.append(self._step(step, batch))
            progress.update(task, advance=1, description=f"training, loss {losses[-1]:.4f}")
            if (step + 1) % self.settings.checkpoint_every == 0 or step + 1 == self.total:
                self._save(step + 1, losses)
        recent = losses[-max(1, self.total // 10) :]
        report = TrainReport(len(self.examples), self.dropped, self.total, sum(recent) / len(recent))
        self._finish(report)
        return report

    def _read(self, window: int) -> tuple[list[Example], int]:
        solutions = [solution for path in self.settings.data for solution in records.read(path)]
        encoded = [(self.format.encode(s.problem, s.steps), s.labels) for s in solutions]
        examples = [Example(e, labels) for e, labels in encoded if len(e.ids) <= window]
        if not examples:
            names = ", ".join(map(str, self.settings.data))
            raise ModelInvalid(f"nothing to train on: {len(solutions)} solutions in {names}, none fits {window} tokens")
        return examples, len(solutions) - len(examples)

    def _with_adapter(self, model: PreTrainedModel) -> PeftModel:
        s = self.settings
        torch.manual_seed(s.seed)  # the adapter's first weights
        lora = LoraConfig(
            r=s.lora_rank,
            lora_alpha=s.lora_alpha,
            lora_dropout=s.lora_dropout,
            target_modules=list(s.lora_targets),
            task_type="CAUSAL_LM",
        )
        tuned: PeftModel = get_peft_model(model, lora)
        return tuned.train()

    def _prepare_forward(self) -> None:
        decoder = self.model.get_base_model().get_decoder()
        self.decoder = torch.compile(decoder, dynamic=True) if self.settings.compile else decoder
        rows = self.model.get_base_model().get_output_embeddings().weight.detach()
        self.direction = (rows[self.config.positive_id] - rows[self.config.negative_id]).float()  # (hidden,)

    def _trained(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _batches(self, first: int) -> Iterator[tuple[int, list[Example]]]:
        step, s = 0, self.settings
        for epoch in range(s.epochs):
            for indices in batches(len(self.examples), s.batch_size, epoch, s.seed):
                if step >= first:
                    yield step, [self.examples[index] for index in indices]
                step += 1

    def _step(self, step: int, batch: Sequence[Example]) -> float:
        """One optimiser step; the mean loss per labelled step of the batch."""
        torch.manual_seed(self.settings.seed * 1_000_003 + step)  # the dropout of this step
        tags = sum(len(example.labels) for example in batch)
        loss = 0.0
        for micro in micro_batches(batch, self.settings.batch_tokens):
            part = step_bce(self._margins(micro), micro.labels.to(self.device), tags)
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(self._trained().values(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(step, self.total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def _margins(self, micro: MicroBatch) -> torch.Tensor:
        """`logit₊ − logit₋` at the tags, (tags,) in fp32: read at the tag itself, nothing is shifted."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.bf16):
            hidden = self.decoder(input_ids=micro.ids.to(self.device), use_cache=False).last_hidden_state
        tags: torch.Tensor = hidden[micro.rows.to(self.device), micro.columns.to(self.device)]  # (tags, hidden)
        margins: torch.Tensor = tags.float() @ self.direction
        return margins

    def _fingerprint(self) -> str:
        """Tells whether a checkpoint belongs to this run: everything that its result depends on."""
        told = {k: str(v) for k, v in asdict(self.settings).items() if k not in ("output", "checkpoint_every", "data")}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        for example in self.examples:
            digest.update(repr((example.encoded.ids, example.labels)).encode())
        return digest.hexdigest()

    def _resume(self) -> tuple[int, list[float]]:
        if not self.state.exists():
            return 0, []
        kept = checkpoint.load(self.state, self._trained(), [self.optimizer])
        if kept["fingerprint"] != self.fingerprint:
            raise ModelInvalid(
                f"{self.state} belongs to a run with other settings or data; choose another output directory"
            )
        return int(kept["step"]), list(kept["losses"])

    def _save(self, step: int, losses: list[float]) -> None:
        progress = {"step": step, "losses": losses, "fingerprint": self.fingerprint}
        checkpoint.save(self.state, self._trained(), [self.optimizer], progress)
        lines = (json.dumps({"step": n, "loss": loss}) + "\n" for n, loss in enumerate(losses, 1))
        self.log.write_text("".join(lines), "utf-8")

    def _finish(self, report: TrainReport) -> None:
        output = self.settings.output
        self.model.peft_config["default"].base_model_name_or_path = self.config.base
        self.model.save_pretrained(str(output), save_embedding_layers=False)
        self.config.write(output)
        write_card(output, self.config, self.settings, report)


def _portable(base: str, output: Path) -> str:
    """The base as it is named beside the adapter: a path relative to the adapter, or the hub name."""
    if not Path(base).is_dir():
        return base
    relative = os.path.relpath(Path(base).resolve(), output.resolve())
    return relative if relative.startswith(".") else f"./{relative}"
