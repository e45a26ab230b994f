"""Step scores by the log-probabilities that the generator's server gives its tokens: no model runs, no text is read.

How surprised a model is by its text tells something of where it errs, more than the length of a step does and less
than a PRM of 7B: docs/lab/uncertainty.md has figures.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from unprm.calibration import sigmoid
from unprm.engines.byte_format import ByteFormat
from unprm.types import Encoded, ModelDescription, StepScores
from unprm.uncertainty import MEASURES, SURPRISAL, surprise

NAME = "uncertainty"
FIGURES = ("mean", "largest", "total", "top3")
"""The names of the coefficients, in the order of `SURPRISAL`."""


@dataclass(frozen=True, slots=True)
class Readout:
    """A step's score is the sigmoid of `intercept` plus each figure of `surprise` of its tokens times its coefficient.
    `fitted`: on what."""

    intercept: float
    mean: float
    largest: float
    total: float
    top3: float
    fitted: str

    def score(self, logprobs: Sequence[float]) -> float:
        """The score in [0, 1] of a step by the log-probabilities (≤ 0) of its tokens, at least one."""
        pairs = zip(FIGURES, surprise(logprobs), strict=True)
        return sigmoid(self.intercept + math.fsum(getattr(self, name) * value for name, value in pairs))


READOUT = Readout(
    intercept=1.7785,
    mean=0.0606,
    largest=0.1691,
    total=-1.4133,
    top3=1.5712,
    fitted="9,334 steps, nearly all of PRM800K's generator, 59 % right, with log-probabilities of "
    "Qwen2.5-Coder-0.5B-Instruct",
)
"""Made by `python -m research uncertainty`, which also tests it. The labels are people's; the log-probabilities are not
those of the generator that wrote the steps, which nobody published, but of a small model that reads them."""


class UncertaintyFormat(ByteFormat):
    """An id for each step, whatever its text: the text is not read."""

    family = NAME
    longest_token = 2**31
    no_prompts = "the model reads log-probabilities alone, no prompts: send solutions with `token_logprobs`"

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """A position for each step; the log-probabilities are still to be added."""
        return Encoded((0,) * len(steps), tuple(range(len(steps))))

    def text(self, encoded: Encoded) -> str:
        return "\n".join(map(_figures, encoded.logprobs))

    def tokens(self, encoded: Encoded) -> list[str]:
        return ["ş"] * len(encoded.ids)


class UncertaintyEngine:
    """Scores by a read-out of surprisals. `max_steps`: of a solution."""

    def __init__(self, max_steps: int, readout: Readout = READOUT) -> None:
        self.format = UncertaintyFormat()
        self._readout = readout
        self.description = ModelDescription(
            name=NAME,
            family=NAME,
            engine=NAME,
            device="cpu",
            dtype="float64",
            max_tokens=max_steps,
            input_format=f"log-probabilities of each step's tokens (token_logprobs); fitted on {readout.fitted}",
            digest=hashlib.sha256(repr(readout).encode()).hexdigest()[:16],
            by_logprobs=True,
        )

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        return [StepScores(tuple(map(self._readout.score, item.logprobs))) for item in batch]

    def close(self) -> None:
        """Nothing is held."""


def _figures(logprobs: Sequence[float]) -> str:
    listed = ", ".join(f"{name} {MEASURES[each](logprobs):.4f}" for name, each in zip(FIGURES, SURPRISAL, strict=True))
    return f"surprisal in nats of {len(logprobs)} tokens: {listed}"
