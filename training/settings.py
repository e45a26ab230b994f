"""What a training run is told, and what it tells."""

import math
from dataclasses import dataclass
from pathlib import Path

from unprm.formats.unprm import PROBLEM_TEMPLATE


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How to train. The defaults are those of the authors' public code.

    `batch_size` is in solutions per optimiser step, `batch_tokens` in tokens per forward pass, padding
    included. `name`: the model's, the output directory's if empty. `problem_template`: how the model reads a
    problem, in which `{problem}` stands for it. `warmup` is the fraction of all steps in which
    the learning rate rises.
    """

    base: str
    data: tuple[Path, ...]
    output: Path
    name: str = ""
    base_revision: str | None = None
    problem_template: str = PROBLEM_TEMPLATE
    epochs: int = 3
    learning_rate: float = 5e-4
    warmup: float = 0.1
    batch_size: int = 256
    batch_tokens: int = 16384
    lora_rank: int = 8
    lora_alpha: int = 32
    lora_dropout: float = 0.1
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    bf16: bool = False
    compile: bool = False
    checkpoint_every: int = 50
    seed: int = 0

    def rate(self, step: int, total: int) -> float:
        """Learning rate of a step: linear warm-up, then a cosine to zero."""
        rising = max(1, round(self.warmup * total))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, total - rising)))


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a run did; `loss` is the mean over the last tenth of its steps."""

    examples: int
    dropped_too_long: int
    steps: int
    loss: float
