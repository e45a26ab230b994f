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

import numpy as np
from scipy.special import betaln, rel_entr, softmax
from scipy.stats import betabinom

from unprm.types import Rollout

from ..evaluate.metrics import Numbers
from ..stage_settings import BayesSettings


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


async def bayes(solution: WrongSolution, prefixes: Prefixes, settings: BayesSettings) -> int:
    """The most likely first wrong step of a solution with at least two steps, by probabilistic bisection: a posterior
    over the steps, updated by small blocks of rollouts.

    Hypothesis t: step t is the first wrong one. Under it, prefixes before t succeed about as often as the question
    itself, and prefixes from t on rarely. Both rates vary from prefix to prefix, so the likelihood of a prefix's
    rollouts is beta-binomial: many rollouts at one prefix never outweigh evidence from others. The next block goes to
    the prefix with the highest expected information about the hypotheses, and the search ends as soon as one hypothesis
    is likely enough.
    """
    belief = Belief(solution, settings)
    for _ in range(settings.budget // settings.block):
        if belief.posterior().max() >= settings.sure:
            break
        step = belief.most_telling()
        rollouts = await prefixes.draw(step, settings.block)
        belief.observed[step] = (sum(rollout.correct for rollout in rollouts), len(rollouts))
    return 1 + int(belief.posterior().argmax())


class Belief:
    """Posterior over the first wrong step; `observed[t]`: numbers of right and of all rollouts from prefix t."""

    def __init__(self, solution: WrongSolution, settings: BayesSettings) -> None:
        self.settings, self.length = settings, solution.length
        self.prior = prior(solution, settings)
        before = (solution.solved + 1) / (solution.samples + 2)
        # parameters of the beta distributions of the two success rates, before an error and after it
        means = np.array([before, settings.recovery * before])
        self.alpha, self.beta = settings.concentration * means, settings.concentration * (1 - means)
        self.observed: dict[int, tuple[int, int]] = {}

    def posterior(self) -> Numbers:
        logs = np.log(self.prior)
        for step, (right, count) in self.observed.items():
            before, after = betaln(self.alpha + right, self.beta + count - right) - betaln(self.alpha, self.beta)
            logs += np.where(np.arange(self.length) < step, after, before)  # hypothesis h: step h + 1 is the first
        made: Numbers = softmax(logs)
        return made

    def most_telling(self) -> int:
        """The step before T whose prefix's next block has the highest expected information; of equal ones the first."""
        wrong = np.minimum(1.0, self.posterior().cumsum())  # probability that a prefix contains an error
        gains = [self._gain(step, float(wrong[step - 1])) for step in range(1, self.length)]
        return 1 + int(np.round(gains, 12).argmax())

    def _gain(self, step: int, wrong: float) -> float:
        """Mutual information in nats between "prefix `step` contains an error" and its next block."""
        right, count = self.observed.get(step, (0, 0))
        block = self.settings.block
        alpha, beta = (self.alpha + right)[:, None], (self.beta + count - right)[:, None]
        outcomes = betabinom.pmf(np.arange(block + 1), block, alpha, beta)  # (2, outcomes): before an error, after it
        shares = np.array([1 - wrong, wrong])
        return float(shares @ rel_entr(outcomes, shares @ outcomes).sum(axis=1))


def prior(solution: WrongSolution, settings: BayesSettings) -> Numbers:
    """Prior of steps 1 to T being the first wrong one: a softmax of the standardised Δu times `strength`; the first
    step's Δu is taken against the mean over the question's steps."""
    rises = np.diff([solution.mean_uncertainty, *solution.uncertainties])
    standardised = (rises - rises.mean()) / rises.std() if np.ptp(rises) else np.zeros(len(rises))
    made: Numbers = softmax(settings.strength * standardised)
    return made
