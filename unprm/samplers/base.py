"""Base of the samplers that work on token ids."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from unprm.samplers.prompts import Prompter
from unprm.types import Completion, SamplingSettings


class TokenSampler(ABC):
    """A `Sampler` for the model `name`, whose tokenizer is in `directory`.

    Raises `ModelInvalid` if there is no tokenizer, or its chat template changes the problem.
    """

    neutral: Mapping[str, float] = {}

    def __init__(self, directory: Path, name: str, settings: SamplingSettings) -> None:
        self._name, self._settings = name, settings
        self._prompter = Prompter.load(directory, settings.worked_examples)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._name

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Token ids of the prompt for a solution."""
        return self._prompter.encode(problem)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return self._prompter.decode(ids)

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem."""
        return await self.complete(self.prompt(problem), count, seed, affinity=problem)

    @abstractmethod
    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt, as in `Sampler`."""

    @abstractmethod
    async def close(self) -> None:
        """Frees the sampler's resources."""
