"""The lab's findings about votes, with the PRMs of one data set and base."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from training.evaluate import best_of_n
from training.evaluate.bootstrap import Estimate, Numbers
from training.evaluate.records import JudgedCandidates
from training.evaluate.right_votes import STUDIED, RightShare, right_share
from unprm.votes.registry import VoteTerms

from ..comparisons import ACCURACY_MARGIN, compare, finding, note

Seeds = Sequence[Sequence[JudgedCandidates]]
"""The judged candidates of every question, once per training seed of the PRM."""
PAIRS = tuple((vote, other) for vote in ("hmr", "wrf", "weighted") for other in ("majority", "prm"))
PAPER_ALPHA, ALPHAS = 0.5, tuple(k / 10 for k in range(11))


def votes(judged: Seeds, about: str) -> str:
    """Whether HMR, WRF and the sum of rewards beat majority and PRM, and at which N: one family per pair of votes.
    `about`: the PRMs."""
    right = {
        size: {name: _outcomes(judged, size, partial(right_share, name)) for name in STUDIED} for size in _sizes(judged)
    }
    sizes = [size for size in right if size > 1]  # at N = 1 all votes elect the same candidate
    families = [
        compare({size: Estimate.mean(right[size][a] - right[size][b]) for size in sizes}, ACCURACY_MARGIN)
        for a, b in PAIRS
    ]
    return finding(
        f"{about}: do HMR, WRF and the sum of rewards beat majority and PRM?",
        ["N", *(f"{name} in % (95 % interval)" for name in STUDIED), *(f"{a} − {b}" for a, b in PAIRS)],
        ([size, *map(_share, by_vote.values()), *(family.get(size, "") for family in families)]
         for size, by_vote in right.items()),
        note(len(sizes), ACCURACY_MARGIN, len(judged)),
    )  # fmt: skip


def alphas(judged: Seeds, about: str) -> str:
    """Which α is best for WRF: each other value against the paper's. `about`: the PRMs."""
    sizes = [size for size in _sizes(judged) if size >= 4]
    right: Mapping[float, list[Numbers]] = {
        alpha: [_outcomes(judged, size, partial(right_share, "wrf", terms=VoteTerms(alpha=alpha))) for size in sizes]
        for alpha in ALPHAS
    }
    means = {alpha: np.mean(by_size, axis=0) for alpha, by_size in right.items()}
    others = [alpha for alpha in ALPHAS if alpha != PAPER_ALPHA]
    family = compare({alpha: Estimate.mean(means[alpha] - means[PAPER_ALPHA]) for alpha in others}, ACCURACY_MARGIN)
    return finding(
        f"{about}: which α serves WRF best?",
        ["α", *(f"N = {size} (%)" for size in sizes), "on average in % (95 % interval)",
         f"against {PAPER_ALPHA:g}, points"],
        ([alpha, *(f"{100 * outcomes.mean():.1f}" for outcomes in by_size), _share(means[alpha]), family.get(alpha, "")]
         for alpha, by_size in right.items()),
        note(len(family), ACCURACY_MARGIN, len(judged)),
    )  # fmt: skip


def _sizes(judged: Seeds) -> list[int]:
    """The N for which every question has enough candidates."""
    fewest = min(len(candidates.classes) for candidates in judged[0])
    return [size for size in best_of_n.SIZES if size <= fewest]


def _outcomes(judged: Seeds, size: int, rule: RightShare) -> Numbers:
    """The share of right votes over draws of `size` candidates, (seeds, questions). All rules and seeds use the same
    draws, so that outcomes are paired."""
    return np.array([best_of_n.accuracies(questions, size, rule) for questions in judged], dtype=float)


def _share(outcomes: Numbers) -> str:
    return Estimate.mean(outcomes).share.in_percent
