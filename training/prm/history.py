"""Losses and validations of a training run so far, kept in its checkpoint and written to its logs."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ..evaluate.metrics import Validation


@dataclass(slots=True)
class History:
    """`losses`: of each optimiser step; `validations`: of each epoch, if there are held-out solutions."""

    losses: list[float] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """The history from its fields as JSON values."""
        return cls(list(state["losses"]), [Validation(**figures) for figures in state["validations"]])

    def recent_loss(self) -> float:
        """Mean over the last tenth of the steps."""
        recent = self.losses[-max(1, len(self.losses) // 10) :]
        return sum(recent) / len(recent)

    def write(self, directory: Path) -> None:
        """Writes `train.jsonl`, one line per step, and `validation.jsonl`, one line per validated epoch, if any."""
        steps = ({"step": number, "loss": loss} for number, loss in enumerate(self.losses, 1))
        epochs = ({"epoch": number, **asdict(validation)} for number, validation in enumerate(self.validations, 1))
        _write(directory / "train.jsonl", steps)
        if self.validations:
            _write(directory / "validation.jsonl", epochs)


def _write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
