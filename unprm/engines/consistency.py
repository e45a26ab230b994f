"""The self-test of an engine whose weights another program runs: it is compared with itself, on shared prefixes."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from unprm.types import Engine, SelfTest

ELSEWHERE = 0.05
"""Allowed difference of scores of the same steps where another program computes, in a type that it doesn't report."""

PROBLEM = "A box holds 12 red pens and 30 blue ones. Ana takes a third of each colour. How many are left?"
_STEPS = (
    "She takes 12 / 3 = 4 red and 30 / 3 = 10 blue pens.",
    "That is 4 + 10 = 14 of 42.",
    "So 42 - 14 = 28 are left: \\boxed{28}.",
)
_OTHER = "A third of 42 is 12, so 42 - 12 = 30 are left: \\boxed{30}."
SOLUTIONS = (_STEPS, (_STEPS[0], _OTHER), (*_STEPS[:2], _OTHER))
"""All begin with the same step; the first and the last begin with the same two."""
_SHORT_PROBLEM = "2 + 3 + 4 = ?"
SHORT_SOLUTIONS = (("2 + 3 = 5", "5 + 4 = 9", "9"), ("2 + 3 = 5", "8"), ("2 + 3 = 5", "5 + 4 = 9", "5"))
"""The same for models with a small window."""


def check_consistency(engine: Engine) -> SelfTest:
    """How far scores of the same steps differ alone, together and in longer solutions, and whether prefixes are cached.
    Raises `ValueError` for a wrong number of scores."""
    for problem, solutions in ((PROBLEM, SOLUTIONS), (_SHORT_PROBLEM, SHORT_SOLUTIONS)):
        items = [engine.format.encode(problem, steps) for steps in solutions]
        if all(len(item.ids) <= engine.description.max_tokens for item in items):
            break
    alone = [engine.score([item]) for item in items]
    first, second, third = (scores.values for (scores,) in alone)
    counts, steps = list(map(len, (first, second, third))), [len(item.positions) for item in items]
    if counts != steps:
        raise ValueError(f"solutions of {steps} steps have {counts} scores")
    pairs = [*zip((first, second, third), (scored.values for scored in engine.score(items)), strict=True)]
    pairs += [(first[:1], second[:1]), (first[:2], third[:2])]
    difference = max(float(np.abs(differences([one], [other])).max()) for one, other in pairs)
    return SelfTest(difference, ELSEWHERE, cached=alone[2][0].computed < len(items[2].ids_to_last_position))


def differences(expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> np.ndarray:
    """Of all margins, or of both numbers of each."""
    pairs = chain.from_iterable(zip(a, b, strict=True) for a, b in zip(expected, found, strict=True))
    return np.array([np.subtract(a, b) for a, b in pairs])
