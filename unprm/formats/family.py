"""The description of a PRM family, and how scores are read from its models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from unprm.types import Aggregate, Format

LAYER = "score"
"""Checkpoint name of the one linear layer that transformers puts on a language model to classify tokens."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Scored by P(positive) against P(negative): the sigmoid of the difference of two tokens' logits. `rows_alone`: by
    the output layer's rows, as `unprm train` trains them, without the model's bias, scale or cap of logits."""

    positive: int
    negative: int
    rows_alone: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Head:
    """Scored by linear `layers` with ReLU between them: the sigmoid of one output, or the second of two classes."""

    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Scored by the mean of several heads' sigmoids. `layers`: names of linear layers, with ReLU between, which hold
    all heads' weights, (heads, inputs, outputs), and biases, (heads, outputs)."""

    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole solution is scored, by the sigmoid of a linear `layer` without a bias and with one output."""

    layer: str


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Scored by the sigmoid of `beta` · (log P − log P of the reference model), summed over the response."""

    beta: float
    reference: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Scored by linear layers on the hidden states of several `layers`, counted from 1, at a step's tokens, and on
    `measures` of the tokens' log-probabilities, by their names in `unprm.uncertainty.MEASURES`."""

    layers: tuple[int, ...]
    measures: tuple[str, ...]


Readout = Verdicts | Head | Ensemble | Outcome | LikelihoodRatio | Probe
"""How a score is read from a model at a scored position."""


class PrmFormat(Format, Protocol):
    """The format of a loaded model, with its readout."""

    @property
    def readout(self) -> Readout:
        """How a score is read at each position."""

    @property
    def input_format(self) -> str:
        """The input, described in words."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published PRM. `parameters`: in billions; `f1`: average F1 on ProcessBench in percent, if its paper has it."""

    name: str
    licence: str
    parameters: float
    f1: float | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A PRM family, one of the `FAMILIES` of a file in `unprm/formats`.

    `readout`: of all its models; None: each model's configuration says it. `architectures`: of no other family.
    `build`: the format of the model in a directory, or of an adapter's base; raises `ModelInvalid`. `aggregate`: its
    authors'.
    """

    name: str
    about: str
    readout: type[Readout] | None
    build: Callable[[Tokenizer, Path], PrmFormat]
    architectures: tuple[str, ...] = ()
    models: tuple[KnownModel, ...] = ()
    aggregate: Aggregate = "min"
