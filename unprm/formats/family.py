"""What every PRM family is described by, and how a model of it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from unprm.types import Aggregate, Format


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Scored by P(positive) against P(negative): the sigmoid of the difference of two tokens' logits."""

    positive: int
    negative: int


@dataclass(frozen=True, slots=True)
class Head:
    """Scored by linear layers on the last hidden state, ReLU between them; `layers`: their names in the checkpoint.

    The sigmoid of the last layer's output if it has one; of two, the second's share of their softmax.
    """

    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Scored by `beta` · (log P − log P of the reference model), summed from the response's first token to a step's
    last; the sigmoid of that, so that votes see a reward in [0, 1]."""

    beta: float
    reference: str


Readout = Verdicts | Head | LikelihoodRatio
"""How a score is read from a model at a scored position."""


class PrmFormat(Format, Protocol):
    """A format of a model that was loaded, with the way it is read."""

    @property
    def readout(self) -> Readout:
        """How a score is read at each position."""
        ...

    @property
    def input_format(self) -> str:
        """The input in words."""
        ...


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published PRM of a family. `parameters` in billions; `f1`: ProcessBench's average F1 in percent as the paper
    reports it, if it does."""

    name: str
    licence: str
    parameters: float
    f1: float | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A PRM family; each is one file in `unprm/formats` that holds one as `FAMILY`.

    `readout`: the kind that all its models have. `architectures`: those of a `config.json` that belong to no other
    family. `build` makes the format of the model in a directory, and raises `ModelInvalid` if it or its tokenizer lacks
    what that takes. `aggregate`: how its authors make a reward of step scores.
    """

    name: str
    about: str
    readout: type[Verdicts | Head | LikelihoodRatio]
    architectures: tuple[str, ...]
    models: tuple[KnownModel, ...]
    build: Callable[[Tokenizer, Path], PrmFormat]
    aggregate: Aggregate = "min"
