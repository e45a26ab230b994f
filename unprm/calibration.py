"""Calibration: puts step scores of different models on one scale, the frequency with which such steps are right; and
the threshold of a model's errors."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from unprm.errors import ModelInvalid

NAME = "calibration.json"
EDGE = 1e-9
"""Scores are clamped to [EDGE, 1 - EDGE], so that their log-odds are finite."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Platt scaling: the log-odds of a score times `scale`, plus `shift`. `threshold`: a step whose own score, without
    scaling, is below it is an error. The defaults change nothing."""

    scale: float = 1.0
    shift: float = 0.0
    threshold: float = 0.5

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The calibration in a model's directory, or the default; raises `ModelInvalid` if the file is malformed."""
        path = directory / NAME
        if not path.exists():
            return cls()
        try:
            calibration = cls(**json.loads(path.read_text("utf-8-sig")))
            if not all(
                isinstance(value, (int, float)) and math.isfinite(value) for value in asdict(calibration).values()
            ):
                raise ValueError("scale, shift and threshold are not numbers")
        except (OSError, ValueError, TypeError) as error:
            raise ModelInvalid(f"{path} is not a calibration of scale and shift: {error}") from error
        return calibration

    def write(self, directory: Path) -> None:
        (directory / NAME).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    def __call__(self, score: float) -> float:
        """The calibrated score; both scores are in [0, 1]."""
        return sigmoid(self.scale * log_odds(score) + self.shift)


def sigmoid(value: float) -> float:
    """The score in [0, 1] whose log-odds are `value`, without overflow."""
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def log_odds(score: float, edge: float = EDGE) -> float:
    """Log-odds of a score in [0, 1]; finite, since the score is clamped to [`edge`, 1 - `edge`]."""
    kept = min(max(score, edge), 1 - edge)
    return math.log(kept / (1 - kept))
