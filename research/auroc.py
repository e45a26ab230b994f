"""How well a score tells first wrong steps from right ones, over all pairs of them or only those of like length at the
same place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.evaluate.metrics import Estimate, Numbers, weights

LIKE = 1.25
"""Lengths are alike up to this ratio."""


@dataclass(frozen=True, slots=True)
class ScoredSteps:
    """The steps of one solution up to its first error, if any. `scores`: higher where a step looks right; `lengths`: in
    characters; `wrong`: whether the last of them is wrong. `question`: what is resampled."""

    question: str
    scores: tuple[float, ...]
    lengths: tuple[int, ...]
    wrong: bool


def auroc(solutions: Sequence[ScoredSteps], matched: bool) -> Estimate:
    """The share of pairs of a first wrong step and a right one in which the right one scores higher; a tie counts half.

    `matched`: only pairs at the same place whose lengths are alike, so that neither can tell. Raises `ValueError` if
    there is no pair.
    """
    questions = {name: k for k, name in enumerate(dict.fromkeys(solution.question for solution in solutions))}
    wrong, right = _table(solutions, questions, True), _table(solutions, questions, False)
    won, counted = np.zeros((2, len(questions), len(questions)))
    for question, score, length, place in wrong:
        paired = np.ones(len(right), dtype=bool)
        if matched:
            alike = np.maximum(right[:, 2], length) <= LIKE * np.minimum(right[:, 2], length)
            paired = alike & (right[:, 3] == place)
        against = right[paired]
        wins = np.heaviside(against[:, 1] - score, 0.5)
        np.add.at(won[int(question)], against[:, 0].astype(int), wins)
        np.add.at(counted[int(question)], against[:, 0].astype(int), 1.0)
    if not counted.any():
        raise ValueError("there is no pair of a wrong and a right step")
    taken = weights(len(questions))
    ones = np.ones((1, len(questions)))
    value, resampled = (_ratio(rows, won, counted) for rows in (ones, taken))
    return Estimate(float(value[0]), resampled, len(questions))


def _table(solutions: Sequence[ScoredSteps], questions: dict[str, int], wrong: bool) -> Numbers:
    """The first wrong steps, or the right ones, (steps, 4): question, score, length, place."""
    rows = [
        (questions[solution.question], score, length, place)
        for solution in solutions
        for place, (score, length) in enumerate(zip(solution.scores, solution.lengths, strict=True))
        if (solution.wrong and place == len(solution.scores) - 1) is wrong
    ]
    return np.array(rows, dtype=float).reshape(-1, 4)


def _ratio(taken: Numbers, won: Numbers, counted: Numbers) -> Numbers:
    hits, counts = (np.einsum("rq,rq->r", taken @ pairs, taken) for pairs in (won, counted))
    made: Numbers = np.divide(hits, counts, out=np.full_like(hits, 0.5), where=counts > 0)
    return made
