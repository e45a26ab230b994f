"""Searches for the error in a wrong solution: each decides which steps are verified by rollouts.

A search accesses a solution through `Prefixes`: it requests the Monte-Carlo value of the prefix that ends with a step
(1-based), and returns the step from which on the solution counts as wrong. There are no rollouts from the last step,
T: its prefix contains the wrong answer, so its value does not tell where the error is. T is the result if no other step
is below τ, as in the authors' program. Only `uncertainty_literal` tries T and may find nothing, as in the text of
Algorithm 1.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unprm.types import Rollout


@dataclass(frozen=True, slots=True)
class WrongSolution:
    """What the searches know about a solution with a wrong answer.

    `uncertainties`: u of each step. `mean_uncertainty`: mean u of the steps of all solutions sampled for its question.
    `tau`: the value of the question alone, in (0, 1]; `samples`, `solved`: rollouts from the question alone, and
    how many of them were right.
    """

    uncertainties: tuple[float, ...]
    mean_uncertainty: float
    tau: float
    solved: int
    samples: int

    @property
    def length(self) -> int:
        return len(self.uncertainties)

    def by_rise(self) -> list[int]:
        """Steps 2 to T by falling Δu, the increase in uncertainty over the previous step (paper, section 3.2); ties by
        lower step."""
        u = self.uncertainties
        return sorted(range(2, self.length + 1), key=lambda step: u[step - 2] - u[step - 1])


class Prefixes(Protocol):
    """The prefixes of a solution, from which rollouts start; prefix t is the question with steps 1 to t."""

    async def value(self, step: int) -> float:
        """Value of prefix `step` in [0, 1], after adaptive sampling."""
        ...

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """Draws `count` more rollouts from prefix `step` and returns all rollouts from it."""
        ...


Search = Callable[[WrongSolution, Prefixes], Awaitable[int | None]]


async def uncertainty(solution: WrongSolution, prefixes: Prefixes) -> int:
    """Paper, Algorithm 1, as in the authors' program: the first of steps 2 to T−1, by falling Δu, with a value below
    τ, else T."""
    order = [step for step in solution.by_rise() if step < solution.length]
    return await _first_below(order, solution, prefixes) or solution.length


async def uncertainty_literal(solution: WrongSolution, prefixes: Prefixes) -> int | None:
    """Paper, Algorithm 1, as in its text: the first of steps 2 to T, by falling Δu, with a value below τ, else None."""
    return await _first_below(solution.by_rise(), solution, prefixes)


async def sequential(solution: WrongSolution, prefixes: Prefixes) -> int:
    """The first of steps 1 to T−1, in order, with a value below τ, else T."""
    return await _first_below(range(1, solution.length), solution, prefixes) or solution.length


async def _first_below(order: Iterable[int], solution: WrongSolution, prefixes: Prefixes) -> int | None:
    for step in order:
        if await prefixes.value(step) < solution.tau:
            return step
    return None


async def adaptive_binary(solution: WrongSolution, prefixes: Prefixes) -> int:
    """The first error by binary search over steps 1 to T−1, else T. It starts nearer to the beginning for hard
    questions and nearer to the end for easy ones (EpicPRM)."""
    low, high = 1, solution.length - 1
    wrong_step = solution.length
    step = (low + high) // 2
    if high >= 5:
        shift = (high - 1) // 4
        step += -shift if solution.tau < 0.3 else shift if solution.tau > 0.9 else 0
    while low <= high:
        if await prefixes.value(step) < solution.tau:
            wrong_step, high = step, step - 1
        else:
            low = step + 1
        step = (low + high) // 2
    return wrong_step


def drawn(length: int, seed: int) -> int:
    """A random step, without rollouts (RanPRM40K)."""
    return random.Random(seed).randint(1, length)
