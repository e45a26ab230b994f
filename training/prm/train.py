"""Trains a PRM from step-labelled solutions: a LoRA adapter on a causal language model, or all its weights.

    unprm train --base Qwen/Qwen2.5-Math-7B-Instruct --data steps.jsonl --output my-prm
    torchrun --nproc-per-node 8 -m unprm train …

If the same command is given again, a killed run resumes from its last checkpoint, with the same result: data order,
dropout and schedule depend only on the seed and the step number. Several processes share each optimiser batch, so their
losses equal those of a single process.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import torch
from rich.progress import Progress
from transformers import PreTrainedConfig
from transformers.utils import is_flash_attn_2_available

from unprm.checkpoints.files import fetch, load_base, load_tokenizer
from unprm.engines.torch.heads import margins
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig, UnprmFormat

from ..evaluate.metrics import Validation
from ..schema import VERDICT
from .card import write_card
from .collate import Example, MicroBatch, batches, micro_batches, read_examples
from .heads import make_head
from .loss import LOSSES
from .memory import MemoryPlan, free_memory, plan
from .network import Network, base_dtype, check_sharing, computes_in_bf16, prepare, read_shape
from .processes import Processes
from .publish import portable, write_adapter, write_all
from .resume import State, fingerprint
from .settings import TrainSettings, TrainSummary

STATE = "checkpoint.safetensors"
"""The last state."""
CHOSEN = ("batch_tokens", "gradient_checkpointing")
"""The settings that are chosen by the free memory unless given."""


class Trainer:
    """One training run: the constructor loads data and model, `train` trains."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings
        self.loss = LOSSES[settings.loss]
        self.processes = Processes.join()
        self.device = self.processes.device
        free = self.processes.smallest(free_memory(self.device) // self.processes.sharing)
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
            beta=settings.beta,
            distribution="beta" if self.loss.counts else None,
        )
        self.format = UnprmFormat(tokenizer, self.config)
        # packed without padding: FlashAttention keeps solutions apart by their positions
        self.packing = flash = is_flash_attn_2_available() and not settings.share_prefixes
        shape = read_shape(str(self.base))
        window = shape.max_position_embeddings
        self.examples, self.dropped = read_examples(settings.data, settings.layout, self.format, window)
        self.held_out: list[Example] = []
        if settings.validation:
            self.held_out, _ = read_examples(settings.validation, None, self.format, window)
        self.state = State(settings.output / STATE, self.processes)
        self.memory = self._plan(settings, shape, free)
        self.settings = replace(settings, **{name: getattr(self.memory, name) for name in CHOSEN})
        self.in_bf16 = computes_in_bf16(settings, self.device.type)
        self.network = self._load(flash).to(self.device)
        # fused, it needs no memory of its own
        fused = settings.tune == "all"
        self.optimizer = torch.optim.AdamW(self._trained().values(), lr=0.0, weight_decay=0.0, fused=fused)
        self.per_epoch = -(-len(self.examples) // settings.batch_size)
        self.total = settings.epochs * self.per_epoch
        self.losses: list[float] = []
        self.validations: list[Validation] = []
        self.fingerprint = fingerprint(self.settings, self.examples, self.base)

    def train(self, progress: Progress) -> TrainSummary:
        """Trains, resuming from the last checkpoint if any; writes the weights, their configuration and card."""
        self.settings.output.mkdir(parents=True, exist_ok=True)
        first = self._resume()
        name = self.config.name
        task = progress.add_task(f"training {name}", total=self.total, completed=first)
        for step, batch in self._batches(first):
            loss = self.step(step, batch)
            self.losses.append(loss)
            progress.update(task, advance=1, description=f"training {name}, loss {loss:.4f}")
            over = (step + 1) % self.per_epoch == 0
            if over and self.held_out:
                self.validations.append(Validation.of(*self._scored(self.held_out)))
            if over or (step + 1) % self.settings.checkpoint_every == 0:
                self._save()
        recent = self.losses[-max(1, len(self.losses) // 10) :]
        summary = TrainSummary(len(self.examples), self.dropped, len(self.losses), sum(recent) / len(recent))
        self._finish(summary)
        self.processes.wait()
        return summary

    def _load(self, flash: bool) -> Network:
        model = load_base(self.base, base_dtype(self.settings, self.device.type))
        if self.settings.share_prefixes:
            check_sharing(model, max(len(example.encoded.ids) for example in (*self.examples, *self.held_out)))
        if flash:
            model.set_attn_implementation("flash_attention_2")
        tuned = prepare(model, self.settings, self.device.type)
        if self.settings.compile:
            model.get_decoder().compile(dynamic=True)
        verdicts = Verdicts(self.config.positive_id, self.config.negative_id)
        return Network(tuned, make_head(tuned, self.settings, verdicts, self.in_bf16))

    def _plan(self, settings: TrainSettings, shape: PreTrainedConfig, free: int) -> MemoryPlan:
        """Chooses the settings in `CHOSEN` that are not given, or takes them from this run's checkpoint."""
        if progress := self.state.progress():
            kept = progress["memory"]
            settings = replace(settings, **{name: kept[name] for name in CHOSEN if getattr(settings, name) is None})
        longest = max(len(example.encoded.ids) for example in self.examples)
        return plan(shape, settings, self.device.type, free, longest)

    def _trained(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

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
        for number, micro in list(enumerate(self._micro_batches(batch)))[self.processes.rank :: self.processes.count]:
            # the same dropout for these solutions in any process
            torch.manual_seed((self.settings.seed * 1_000_003 + step) * 4099 + number)
            labels = (micro.counts if self.loss.counts else micro.labels).to(self.device)
            part = self.loss(self.network(micro, self.in_bf16), labels, micro.solutions.to(self.device), total)
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

    @torch.no_grad()
    def _scored(self, examples: Sequence[Example]) -> tuple[list[list[float]], list[list[bool]]]:
        self.network.eval()
        scores, labels = [], []
        for micro in self._micro_batches(examples):
            values = torch.sigmoid(self._margins(micro)).cpu()
            for number in micro.solutions.unique():
                scores.append(values[micro.solutions == number].tolist())
                labels.append((micro.labels[micro.solutions == number] > VERDICT).tolist())
        self.network.train()
        return scores, labels

    def _micro_batches(self, examples: Sequence[Example]) -> Iterator[MicroBatch]:
        return micro_batches(examples, self.memory.batch_tokens, self.packing, self.settings.share_prefixes)

    def _margins(self, micro: MicroBatch) -> torch.Tensor:
        return margins(self.network(micro, self.in_bf16))

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
        self.losses = progress["history"]["losses"]
        self.validations = [Validation(**figures) for figures in progress["history"]["validations"]]
        return len(self.losses)

    def _save(self) -> None:
        epochs = [asdict(validation) for validation in self.validations]
        progress = {
            "history": {"losses": self.losses, "validations": epochs},
            "fingerprint": self.fingerprint,
            "memory": {name: getattr(self.settings, name) for name in CHOSEN},
        }
        self.state.save(self._trained(), [self.optimizer], progress)
        if self.processes.is_first:
            steps = [{"step": number, "loss": loss} for number, loss in enumerate(self.losses, 1)]
            rows = [{"epoch": number, **figures} for number, figures in enumerate(epochs, 1)]
            for name, lines in {"train": steps, "validation": rows}.items():
                if lines:
                    text = "".join(json.dumps(line) + "\n" for line in lines)
                    (self.settings.output / f"{name}.jsonl").write_text(text, "utf-8")

    def _finish(self, summary: TrainSummary) -> None:
        output = self.settings.output
        if not self.processes.is_first:
            return
        if self.settings.tune == "all":
            write_all(self.network, self.base, self.config, output)
        else:
            write_adapter(self.network, self.config, output)
        write_card(output, self.config, self.settings, summary)
