"""How sure the model that wrote a candidate was, from the log-probabilities of its tokens. Pure.

DeepConf (Fu et al., 2025, arXiv 2508.15260) and self-certainty (Kang et al., 2025, arXiv 2502.18581), as far as the
most likely alternatives of each token tell them.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from unprm.types import ConfidenceMeasure, Solution, Strategy
from unprm.wire import VoteTerms

BOTTOM = 0.1
"""Share of the windows that `bottom` averages."""


def confidence_of(solution: Solution, strategy: Strategy, terms: VoteTerms) -> float | None:
    """The confidence that a vote takes for a candidate: the one it brings, or one from its log-probabilities; None if
    it brings neither."""
    if solution.confidence is not None:
        return solution.confidence
    if strategy == "cisc":
        return None if solution.token_logprobs is None else likelihood(solution.token_logprobs)
    if solution.top_logprobs is None:
        return None
    if strategy == "deepconf":
        return confidence(solution.top_logprobs, terms.measure, terms.window)
    return self_certainty(solution.top_logprobs)


def likelihood(logprobs: Sequence[float]) -> float:
    """Probability of a text per token, in [0, 1]: the geometric mean over its tokens.

    `logprobs`: natural-log probabilities (≤ 0) of the tokens that were sampled, at least one.
    """
    return math.exp(math.fsum(logprobs) / len(logprobs))


def token_confidence(top_logprobs: Sequence[float]) -> float:
    """Confidence of one token, ≥ 0: the negative mean log-probability of its likeliest alternatives.

    `top_logprobs`: natural-log probabilities of the k ≥ 2 likeliest tokens at that place. High where the first holds
    nearly all the probability, so that the others are unlikely.
    """
    return -math.fsum(top_logprobs) / len(top_logprobs)


def confidence(top_logprobs: Sequence[Sequence[float]], measure: ConfidenceMeasure, window: int) -> float:
    """DeepConf's confidence of a candidate, ≥ 0, from its tokens' `top_logprobs` (one list per token, at least one).

    `mean` is over all tokens, `tail` over the last `window`; `lowest` is the lowest mean of any `window` tokens in a
    row, `bottom` the mean of the lowest tenth of these. A candidate of fewer tokens is one window.
    """
    tokens = [token_confidence(alternatives) for alternatives in top_logprobs]
    window = len(tokens) if measure == "mean" else min(window, len(tokens))
    sums = [0.0, *accumulate(tokens)]
    means = sorted((sums[end] - sums[end - window]) / window for end in range(window, len(sums)))
    if measure == "tail":
        return math.fsum(tokens[-window:]) / window
    kept = math.ceil(BOTTOM * len(means)) if measure == "bottom" else 1
    return math.fsum(means[:kept]) / kept


def cut(confidences: Sequence[float], top_share: float) -> float:
    """The lowest confidence among the top share (0 < `top_share` ≤ 1) of candidates, at least one; ties at the share's
    end belong to it."""
    return sorted(confidences, reverse=True)[max(1, math.ceil(top_share * len(confidences))) - 1]


def self_certainty(top_logprobs: Sequence[Sequence[float]]) -> float:
    """Mean over the tokens of the divergence of the uniform distribution from the model's, KL(U ‖ p).

    The definition sums over the whole vocabulary. Here only each token's k likeliest are known: their probabilities
    are renormalized, and U is uniform over those k. In nats, ≥ 0; 0 if all k are equally likely.
    """
    return math.fsum(map(_divergence, top_logprobs)) / len(top_logprobs)


def _divergence(top_logprobs: Sequence[float]) -> float:
    highest = max(top_logprobs)
    log_total = highest + math.log(math.fsum(math.exp(value - highest) for value in top_logprobs))
    return log_total - math.fsum(top_logprobs) / len(top_logprobs) - math.log(len(top_logprobs))
