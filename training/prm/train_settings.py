"""Settings of a training run, and its summary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.table import Table
from typer import Option

from unprm.formats.unprm import NEGATIVE, POSITIVE, PROBLEM_TEMPLATE, STEP_TAG, HeadName

from ..stage import directory
from ..stage_settings import LAYOUT, LayoutName, Seed

if TYPE_CHECKING:
    from ..evaluate.metrics import Validation

LossName = Literal["bce", "mse", "orm", "rank"]
TuneName = Literal["lora", "all", "none"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How to train. The defaults follow the paper and the authors' public code (docs/lab/paper.md).

    If `gradient_checkpointing` or `batch_tokens` is None, the trainer chooses it to fit the free memory, and on a CPU
    the time of a pass; `bf16`, by the device. A probe's training reads `PROBE_OPTIONS` alone.
    """

    base: Annotated[str, Option(help="Base model: hub name, directory, or unprm-mini.")]
    data: Annotated[
        tuple[Path, ...], Option(help="Step labels: a file, a directory, or a data set of the hub; repeat for more.")
    ]
    output: Annotated[
        Path, Option(help="Directory for the trained weights, their configuration and card.", callback=directory)
    ]
    layout: Annotated[LayoutName | None, LAYOUT] = None
    name: Annotated[str, Option(help="Name of the model; the output directory's by default.")] = ""
    base_revision: Annotated[str | None, Option(help="Revision of the base model on the hub.")] = None
    problem_template: Annotated[str, Option(help="Template of the problem text; {problem} is replaced.")] = (
        PROBLEM_TEMPLATE
    )
    step_tag: Annotated[str, Option(help="Marker at the end of each step: one token of the base.")] = STEP_TAG
    positive: Annotated[str, Option(help="Verdict on a right step: one token of the base.")] = POSITIVE
    negative: Annotated[str, Option(help="Verdict on a wrong step: one token of the base.")] = NEGATIVE
    validation: Annotated[
        tuple[Path, ...], Option(help="Held-out step labels, evaluated after each epoch; their layout is detected.")
    ] = ()
    held_out: Annotated[
        float,
        Option(min=0.0, max=0.5, help="Share of --data held out if there is no --validation, by problems; up to 500."),
    ] = 0.1
    head: Annotated[
        Literal[HeadName, "probe"],
        Option(
            help="Two tokens' logits; a linear layer's one or two outputs; or what several layers and the "
            "log-probabilities know, with --tune none."
        ),
    ] = "verdicts"
    tune: Annotated[TuneName, Option(help="What is trained: a LoRA adapter, all weights, or a probe alone.")] = "lora"
    loss: Annotated[LossName, Option(help="Per step (bce, mse), on the last step only (orm), or by ranking.")] = "bce"
    epochs: Annotated[int, Option(min=1)] = 3
    learning_rate: Annotated[float, Option(min=0.0, help="The highest; 1e-5 with --tune all.")] = 5e-4
    warmup: Annotated[float, Option(min=0.0, max=1.0, help="Fraction of optimiser steps for warm-up.")] = 0.1
    batch_size: Annotated[int, Option(min=1, help="Solutions per optimiser step.")] = 256
    batch_tokens: Annotated[
        int | None,
        Option(
            min=1,
            help="Tokens per pass, with padding. Default: as many as fit in memory, up to 16,384; on a CPU, some 10 s. "
            "For a probe 8,192; on a CPU 4,096.",
        ),
    ] = None
    lora_rank: Annotated[int, Option(min=1)] = 8
    lora_alpha: Annotated[int, Option(min=1)] = 32
    lora_dropout: Annotated[float, Option(min=0.0, max=0.99)] = 0.1
    lora_targets: Annotated[
        tuple[str, ...],
        Option(help="Layers that get an adapter, comma-separated; all-linear: all linear layers except the output."),
    ] = ("q_proj", "v_proj")
    bf16: Annotated[
        bool | None,
        Option(
            help="Compute in bfloat16 where that is fast, and keep a frozen base in it (always on a GPU). "
            "Default: on GPUs that have it; for a probe, also on such processors."
        ),
    ] = None
    gradient_checkpointing: Annotated[
        bool | None, Option(help="Compute activations twice to save memory. Default: only if needed.")
    ] = None
    compile: Annotated[bool, Option("--compile", help="Compile the model first; pays off in long runs.")] = False
    checkpoint_every: Annotated[int, Option(min=1, help="Optimiser steps between checkpoints.")] = 50
    seed: Seed = 0

    def rate(self, step: int, total: int) -> float:
        return warmed_cosine(step, total, max(1, round(self.warmup * total)), self.learning_rate)


def warmed_cosine(step: int, total: int, warmup: int, peak: float, floor: float = 0.0) -> float:
    """Learning rate of a step, from 0: a linear rise to `peak` over `warmup` steps, then a cosine that ends at the
    share `floor` of `peak` after `total` steps."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "authors": {"loss": "rank"},
    "default": {
        "learning_rate": 2e-4,
        "batch_size": 128,
        "lora_rank": 16,
        "lora_dropout": 0.05,
        "lora_targets": LINEAR,
    },
}
"""Values that replace the defaults of `TrainSettings`."""
TUNE_DEFAULTS: dict[TuneName, dict[str, Any]] = {"lora": {}, "all": {"learning_rate": 1e-5}, "none": {}}
"""Values that replace those of a preset, by what is trained."""

PROBE_OPTIONS = frozenset({
    "base", "base_revision", "data", "layout", "validation", "output", "name", "tune", "head", "batch_tokens", "bf16",
    "seed",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """Summary of a run; `loss` is the mean over the last tenth of its steps. `validations`: how the scores of the
    `held_out` solutions' steps fit their labels, before the training and after each epoch."""

    examples: int
    dropped_too_long: int
    steps: int
    loss: float
    validations: Sequence["Validation"] = ()
    held_out: int = 0

    def __str__(self) -> str:
        held_out = f"; held out: {self.validations[-1]}" if self.validations else ""
        return f"{self.steps} steps on {self.examples} solutions, loss {self.loss:.4f}{held_out}"


@dataclass(frozen=True, slots=True)
class ReadoutRow:
    """How well one read-out tells steps of problems that it was not fitted to; `layer`: None for the measures
    alone and for the whole."""

    name: str
    layer: int | None
    chosen: bool
    strength: float
    log_loss: float
    auroc: float


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """Summary of a run. `steps`: labelled ones of `examples` solutions; `right`: the share of right ones. `crossed`:
    how their scores fit their labels, each problem's by what was fitted to others; `held_out`: the same of the
    validation, None without one."""

    examples: int
    dropped_too_long: int
    steps: int
    right: float
    layers: tuple[int, ...]
    rows: tuple[ReadoutRow, ...]
    crossed: "Validation"
    held_out: "Validation | None"

    @property
    def table(self) -> Table:
        made = Table("read from", "log-loss", "AUROC", "in the probe")
        for row in self.rows:
            made.add_row(row.name, f"{row.log_loss:.4f}", f"{row.auroc:.4f}", "yes" if row.chosen else "")
        return made

    def __str__(self) -> str:
        layers, held_out = ", ".join(map(str, self.layers)), f"; held out: {self.held_out}" if self.held_out else ""
        return (
            f"a probe of layers {layers}, of {self.steps} steps of {self.examples} solutions; calibration error "
            f"{self.crossed.calibration_error:.3f}{held_out}"
        )
