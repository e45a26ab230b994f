"""Finds the first error by probabilistic bisection: a posterior over the steps, updated by small blocks of rollouts.

Hypothesis t: step t is the first wrong one. Under it, prefixes before t succeed about as often as the question itself,
and prefixes from t on rarely. There are no rollouts from the last step: it is the first error if no other step is. Both
rates vary from prefix to prefix, so the likelihood of a prefix's rollouts is beta-binomial: many rollouts at one prefix
never outweigh evidence from others. The next block goes to the prefix with the highest expected information about the
hypotheses, and the search ends as soon as one hypothesis is likely enough.
"""

import math

from training.data.search import Prefixes, WrongSolution
from training.settings import BayesSettings


async def bayes(solution: WrongSolution, prefixes: Prefixes, settings: BayesSettings) -> int:
    """The most likely first wrong step of a solution with at least two steps."""
    belief = Belief(solution, settings)
    for _ in range(settings.budget // settings.block):
        if max(belief.posterior()) >= settings.sure:
            break
        step = belief.most_telling()
        rollouts = await prefixes.draw(step, settings.block)
        belief.observed[step] = (sum(rollout.correct for rollout in rollouts), len(rollouts))
    posterior = belief.posterior()
    return 1 + max(range(solution.length), key=posterior.__getitem__)


class Belief:
    """Posterior over the first wrong step; `observed[t]`: numbers of right and of all rollouts from prefix t."""

    def __init__(self, solution: WrongSolution, settings: BayesSettings) -> None:
        self.settings, self.length = settings, solution.length
        self.prior = prior(solution, settings)
        before = (solution.solved + 1) / (solution.samples + 2)
        self.before = _beta(before, settings.concentration)
        self.after = _beta(settings.recovery * before, settings.concentration)
        self.observed: dict[int, tuple[int, int]] = {}

    def posterior(self) -> list[float]:
        """Probabilities of steps 1 to T being the first wrong one."""
        logs = [math.log(p) for p in self.prior]
        for step, (right, count) in self.observed.items():
            under = [_log_beta_binomial(right, count, *rates) for rates in (self.before, self.after)]
            for hypothesis in range(self.length):
                logs[hypothesis] += under[hypothesis < step]  # hypothesis h: step h + 1 is the first wrong one
        peak = max(logs)
        weights = [math.exp(value - peak) for value in logs]
        total = sum(weights)
        return [weight / total for weight in weights]

    def most_telling(self) -> int:
        """The step before T whose prefix's next block has the highest expected information; of equal ones the first."""
        posterior = self.posterior()
        wrong = 0.0  # probability that prefix t contains an error
        gains = []
        for step in range(1, self.length):
            wrong += posterior[step - 1]
            gains.append(self._gain(step, min(1.0, wrong)))
        return 1 + max(range(self.length - 1), key=lambda index: (round(gains[index], 12), -index))

    def _gain(self, step: int, wrong: float) -> float:
        """Mutual information in nats between "prefix `step` contains an error" and its next block."""
        outcomes = [
            [self._predicted(step, right, rates) for right in range(self.settings.block + 1)]
            for rates in (self.before, self.after)
        ]
        gain = 0.0
        for p_before, p_after in zip(*outcomes, strict=True):
            mixed = (1 - wrong) * p_before + wrong * p_after
            gain += sum(
                share * p * math.log(p / mixed) for share, p in ((1 - wrong, p_before), (wrong, p_after)) if share * p
            )
        return gain

    def _predicted(self, step: int, right: int, rates: tuple[float, float]) -> float:
        """Probability of `right` right rollouts in the next block from a prefix, given those seen."""
        seen, count = self.observed.get(step, (0, 0))
        a, b = rates[0] + seen, rates[1] + count - seen
        block = self.settings.block
        return math.comb(block, right) * math.exp(_log_beta_binomial(right, block, a, b))


def prior(solution: WrongSolution, settings: BayesSettings) -> list[float]:
    """Prior of steps 1 to T being the first wrong one: a softmax of the standardised Δu times `strength`; the first
    step's Δu is taken against the mean over the question's steps."""
    before = (solution.mean_uncertainty, *solution.uncertainties)
    deltas = [after - b for after, b in zip(solution.uncertainties, before, strict=False)]
    mean = math.fsum(deltas) / len(deltas)
    spread = math.sqrt(math.fsum((delta - mean) ** 2 for delta in deltas) / len(deltas)) or 1.0
    weights = [math.exp(settings.strength * (delta - mean) / spread) for delta in deltas]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _beta(rate: float, concentration: float) -> tuple[float, float]:
    return rate * concentration, (1 - rate) * concentration


def _log_beta_binomial(right: int, count: int, a: float, b: float) -> float:
    """Log-likelihood of a sequence with `right` successes in `count`, its rate drawn from Beta(a, b)."""
    return _log_beta(a + right, b + count - right) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
