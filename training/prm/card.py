"""The model card that a training run writes next to its adapter."""

from pathlib import Path

from training.settings import TrainSettings, TrainSummary
from unprm.formats.unprm import PrmConfig

_CARD = """---
library_name: peft
base_model: {config.base}
tags: [process-reward-model, unprm]
---

# {config.name}

A process reward model: a LoRA adapter for `{config.base}` that scores each step of a solution by
P(`{config.positive}`) against `{config.negative}` at the step tag `{config.step_tag}`.

    python -m server --model PATH_OF_THIS_DIRECTORY

| trained on | |
|---|---|
| solutions | {summary.examples} ({summary.dropped_too_long} dropped, longer than the model's window) |
| data | {data} |
| optimiser steps | {summary.steps} of {settings.batch_size} solutions, {settings.epochs} epochs |
| loss at the end | {summary.loss:.4f} ({settings.loss}, mean of the last tenth of the steps) |
| LoRA | rank {settings.lora_rank}, alpha {settings.lora_alpha}, dropout {settings.lora_dropout}, on {targets} |
| learning rate | {settings.learning_rate:g}, {settings.warmup:.0%} warm-up, cosine to zero |
| seed | {settings.seed} |
"""


def write_card(output: Path, config: PrmConfig, settings: TrainSettings, summary: TrainSummary) -> None:
    """Writes `README.md` into the adapter's directory."""
    text = _CARD.format(
        config=config,
        settings=settings,
        summary=summary,
        data=", ".join(path.name for path in settings.data),
        targets=", ".join(settings.lora_targets),
    )
    (output / "README.md").write_text(text, "utf-8")
