"""Finds the first error by probabilistic bisection: a posterior over the steps, updated by small blocks of rollouts.

Hypothesis t: step t is the first wrong one. Under it, prefixes before t succeed about as often as the question itself,
and prefixes from t on rarely. There are no rollouts from the last step: it is the first error if no other step is. Both
rates vary from prefix to prefix, so the likelihood of a prefix's rollouts is beta-binomial: many rollouts at one prefix
never outweigh evidence from others. The next block goes to the prefix with the highest expected information about the
hypotheses, and the search ends as soon as one hypothesis is likely enough.
"""

import numpy as np
from scipy.special import betaln, rel_entr, softmax
from scipy.stats import betabinom

from ..evaluate.bootstrap import Numbers
from ..stage_settings import BayesSettings
from .search import Prefixes, WrongSolution


async def bayes(solution: WrongSolution, prefixes: Prefixes, settings: BayesSettings) -> int:
    """The most likely first wrong step of a solution with at least two steps."""
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
        """Probabilities of steps 1 to T being the first wrong one."""
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
