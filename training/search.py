"""Where a wrong solution goes wrong: the searches that decide which steps are verified by rollouts.

Each search sees a solution through `Prefixes`: it asks for the Monte-Carlo value of the prefix that ends with a
step (1-based), and answers with the step from which on the solution counts as wrong. The last step, T, is never
rolled out: its prefix holds the wrong answer, so its value says nothing of where the error is. It is the answer where
no other step falls below τ, as in the authors' program. `uncertainty_literal` alone tries it and may find nothing,
as the text of Algorithm 1 has it.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unprm.types import Rollout


@dataclass(frozen=True, slots=True)
class WrongSolution:
    """What the searches know of a solution with a wrong answer.

    `uncertainties`: u of each step. `mean_uncertainty`: of the steps of all solutions sampled for its question.
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
        """Number of steps."""
        return len(self.uncertainties)

    def by_rise(self) -> list[int]:
        """Steps 2 to T by falling Δu, their rise of uncertainty (paper, section 3.2); ties by lower step."""
        u = self.uncertainties
        return sorted(range(2, self.length + 1), key=lambda step: u[step - 2] - u[step - 1])


class Prefixes(Protocol):
    """The prefixes of a solution, which rollouts start from; prefix t is the question with steps 1 to t."""

    async def value(self, step: int) -> float:
        """Value of prefix `step` in [0, 1], after adaptive sampling."""
        ...

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """All rollouts from prefix `step` after `count` more."""
        ...


Search = Callable[[WrongSolution, Prefixes], Awaitable[int | None]]


async def uncertainty(solution: WrongSolution, prefixes: Prefixes) -> int:
    """Paper, Algorithm 1, as the authors' program runs it: steps 2 to T−1 by falling Δu, until one has a value below
    τ, else T."""
    order = [step for step in solution.by_rise() if step < solution.length]
    return await _first_below(order, solution, prefixes) or solution.length


async def uncertainty_literal(solution: WrongSolution, prefixes: Prefixes) -> int | None:
    """Paper, Algorithm 1, by its text: steps 2 to T by falling Δu, until one has a value below τ, else None."""
    return await _first_below(solution.by_rise(), solution, prefixes)


async def sequential(solution: WrongSolution, prefixes: Prefixes) -> int:
    """The first of the steps 1 to T−1 whose value is below τ, tried one after the other, else T."""
    return await _first_below(range(1, solution.length), solution, prefixes) or solution.length


async def _first_below(order: Iterable[int], solution: WrongSolution, prefixes: Prefixes) -> int | None:
    for step in order:
        if await prefixes.value(step) < solution.tau:
            return step
    return None


async def adaptive_binary(solution: WrongSolution, prefixes: Prefixes) -> int:
    """The first error by binary search over steps 1 to T−1, else T. It begins nearer to the start for hard questions
    and nearer to the end for easy ones (EpicPRM)."""
    low, high = 1, solution.length - 1
    found = solution.length
    step = (low + high) // 2
    if high >= 5:
        shift = (high - 1) // 4
        step += -shift if solution.tau < 0.3 else shift if solution.tau > 0.9 else 0
    while low <= high:
        if await prefixes.value(step) < solution.tau:
            found, high = step, step - 1
        else:
            low = step + 1
        step = (low + high) // 2
    return found


def drawn(length: int, seed: int) -> int:
    """Any of the steps, without a rollout (RanPRM40K)."""
    return random.Random(seed).randint(1, length)
