"""Calibration: step scores of different models on one scale, that of how often such steps are right."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from unprm.errors import ModelInvalid

NAME = "calibration.json"
EDGE = 1e-9
"""Scores count as no nearer to 0 or 1, so that their log-odds are finite."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Platt's: the log-odds of a score times `scale`, plus `shift`. As it stands by default it changes nothing."""

    scale: float = 1.0
    shift: float = 0.0

    @classmethod
    def read(cls, directory: Path) -> Self:
        """That in a model's directory, or none; raises `ModelInvalid` if the file is something else."""
        path = directory / NAME
        if not path.exists():
            return cls()
        try:
            calibration = cls(**json.loads(path.read_text("utf-8")))
            if not all(
                isinstance(value, (int, float)) and math.isfinite(value)
                for value in (calibration.scale, calibration.shift)
            ):
                raise ValueError("scale and shift are no numbers")
        except (OSError, ValueError, TypeError) as error:
            raise ModelInvalid(f"{path} is no calibration of scale and shift: {error}") from error
        return calibration

    def write(self, directory: Path) -> None:
        """Writes `calibration.json`."""
        (directory / NAME).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    def __call__(self, score: float) -> float:
        """The calibrated score, in [0, 1] as the score is."""
        return sigmoid(self.scale * log_odds(score) + self.shift)


@dataclass(frozen=True, slots=True)
class RecordedCalibration:
    """The calibration of a published PRM by its hub name, and the calibrated score below which a step is an error."""

    model: str
    calibration: Calibration
    threshold: float


def sigmoid(value: float) -> float:
    """The score in [0, 1] whose log-odds are `value`, without overflow."""
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def log_odds(score: float, edge: float = EDGE) -> float:
    """Of a score in [0, 1]; finite, for it counts as no nearer to 0 or 1 than `edge`."""
    kept = min(max(score, edge), 1 - edge)
    return math.log(kept / (1 - kept))
