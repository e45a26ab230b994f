"""How uncertain a model was of its own text, and how often it reaches the right answer from a prefix.

All logarithms are natural; `logprobs` are the log-probabilities (≤ 0) of the generated tokens, at least one.
"""

import math
from collections.abc import Callable, Sequence

from unprm.types import Rollout

Measure = Callable[[Sequence[float]], float]
Estimator = Callable[[Sequence[Rollout]], float]


def entropy(logprobs: Sequence[float], temperature: float = 1.0) -> float:
    """Entropy in nats of the softmax of the log-probabilities over the positions; in [0, log n], mostly log n.

    Paper, section 3.1; the authors' public code divides by a temperature of 5.
    """
    _require(logprobs)
    scaled = [logprob / temperature for logprob in logprobs]
    peak = max(scaled)
    weights = [math.exp(value - peak) for value in scaled]
    total = math.fsum(weights)
    # -Σ z log z with log z = (value - peak) - log total
    return max(0.0, math.log(total) - math.fsum(w * (v - peak) for w, v in zip(weights, scaled, strict=True)) / total)


def entropy_t5(logprobs: Sequence[float]) -> float:
    """`entropy` at temperature 5, as in the authors' public code."""
    return entropy(logprobs, temperature=5.0)


def normalized_entropy(logprobs: Sequence[float]) -> float:
    """`entropy` divided by its largest value log n; in [0, 1], 0 for a single token."""
    _require(logprobs)
    return 0.0 if len(logprobs) == 1 else entropy(logprobs) / math.log(len(logprobs))


def surprisal_mean(logprobs: Sequence[float]) -> float:
    """Mean of −log p in nats: the logarithm of the perplexity."""
    _require(logprobs)
    return -math.fsum(logprobs) / len(logprobs)


def surprisal_max(logprobs: Sequence[float]) -> float:
    """Largest −log p in nats."""
    _require(logprobs)
    return -min(logprobs)


def surprisal_sum(logprobs: Sequence[float]) -> float:
    """Sum of −log p in nats."""
    _require(logprobs)
    return -math.fsum(logprobs)


def surprisal_top3(logprobs: Sequence[float]) -> float:
    """Mean of the three largest −log p in nats, of all if there are fewer."""
    return surprisal_mean(sorted(logprobs)[:3])


MEASURES: dict[str, Measure] = {
    "entropy": entropy,
    "entropy_t5": entropy_t5,
    "normalized_entropy": normalized_entropy,
    "surprisal_mean": surprisal_mean,
    "surprisal_max": surprisal_max,
    "surprisal_sum": surprisal_sum,
    "surprisal_top3": surprisal_top3,
}

SURPRISAL = ("surprisal_mean", "surprisal_max", "surprisal_sum", "surprisal_top3")
"""The measures that scores are read from."""


def surprise(logprobs: Sequence[float], measures: Sequence[str] = SURPRISAL) -> list[float]:
    """log(1 + measure) of each, so that a generator that is surer of all it writes is not beyond what was fitted."""
    return [math.log1p(MEASURES[name](logprobs)) for name in measures]


def perplexity(logprobs: Sequence[float]) -> float:
    """exp of the mean surprisal; ≥ 1."""
    return math.exp(surprisal_mean(logprobs))


def mc_ppl(rollouts: Sequence[Rollout]) -> float:
    """Share of the right rollouts in the log-perplexity of all; in [0, 1]. Paper, section 3.3.

    Where every rollout has probability 1, the fraction of right rollouts.
    """
    _require(rollouts)
    total = math.fsum(surprisal_mean(rollout.logprobs) for rollout in rollouts)
    if total <= 0:
        return frequency(rollouts)
    return min(1.0, math.fsum(surprisal_mean(r.logprobs) for r in rollouts if r.correct) / total)


def inverse_ppl(rollouts: Sequence[Rollout]) -> float:
    """Share of the right rollouts in the sum of the inverse perplexities; in [0, 1]. The authors' public code."""
    _require(rollouts)
    total = math.fsum(1 / perplexity(rollout.logprobs) for rollout in rollouts)
    return min(1.0, math.fsum(1 / perplexity(r.logprobs) for r in rollouts if r.correct) / total)


def frequency(rollouts: Sequence[Rollout]) -> float:
    """Fraction of right rollouts; in [0, 1]."""
    _require(rollouts)
    return sum(rollout.correct for rollout in rollouts) / len(rollouts)


ESTIMATORS: dict[str, Estimator] = {"mc_ppl": mc_ppl, "inverse_ppl": inverse_ppl, "frequency": frequency}


def _require(values: Sequence[object]) -> None:
    if not values:
        raise ValueError("at least one value is needed, none was given")
