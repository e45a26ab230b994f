"""Where a wrong solution goes wrong: the searches that decide which steps are verified by rollouts.

Each search sees a solution through `Prefixes`: it asks for the Monte-Carlo value of the prefix that ends with a
step (1-based), and answers with the step from which on the solution counts as wrong, or None.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unprm.types import Rollout


@dataclass(frozen=True, slots=True)
class WrongSolution:
    """What the searches know of a solution with a wrong answer.

    `uncertainties`: u of each step. `mean_uncertainty`: of the steps of all solutions sampled for its question.
    `tau`: the value of the question alone, in (0, 1]; `solved`, `asked`: rollouts from the question alone, and
    how many of them were right.
    """

    uncertainties: tuple[float, ...]
    mean_uncertainty: float
    tau: float
    solved: int
    asked: int

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.uncertainties)

    def deltas(self) -> list[tuple[float, int]]:
        """`(Δu, step)` for steps 2 to T (paper, section 3.2)."""
        pairs = zip(self.uncertainties, self.uncertainties[1:], strict=False)
        return [(after - before, step) for step, (before, after) in enumerate(pairs, 2)]


class Prefixes(Protocol):
    """The prefixes of a solution, which rollouts start from; prefix t is the question with steps 1 to t."""

    async def value(self, step: int) -> float:
        """Value of prefix `step` in [0, 1], after adaptive sampling."""
        ...

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """All rollouts from prefix `step` after `count` more."""
        ...


Search = Callable[[WrongSolution, Prefixes], Awaitable[int | None]]


async def uncertainty(solution: WrongSolution, prefixes: Prefixes) -> int | None:
    """Paper, Algorithm 1: steps in the order of falling Δu, until one has a value below τ. Step 1 has no Δu."""
    for _, step in sorted(solution.deltas(), key=lambda pair: -pair[0]):  # stable: ties by lower step
        if await prefixes.value(step) < solution.tau:
            return step
    return None


async def sequential(solution: WrongSolution, prefixes: Prefixes) -> int | None:
    """The first step whose value is below τ, tried one after the other."""
    for step in range(1, solution.length + 1):
        if await prefixes.value(step) < solution.tau:
            return step
    return None


async def adaptive_binary(solution: WrongSolution, prefixes: Prefixes) -> int | None:
    """The first error by binary search, which begins nearer to the start for hard questions and nearer to the
    end for easy ones (EpicPRM)."""
    low, high, found = 1, solution.length, None
    step = (low + high) // 2
    if solution.length >= 5:
        shift = solution.length // 4
        step += -shift if solution.tau < 0.3 else shift if solution.tau >= 0.9 else 0
        step = min(max(step, low), high)
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
