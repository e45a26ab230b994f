"""Careless authors: how often they are wrong, and that their steps stay steps."""

import random

from research.mini.checker import first_error
from research.mini.slips import Author, carries, wrong_result
from unprm import steps
from unprm.mini.domain import calculate
from unprm.mini.storyteller import DEMANDING, generate


def _share_right(carelessness: float) -> float:
    rng = random.Random(3)
    author = Author(rng, carelessness)
    problems = [generate(rng, DEMANDING) for _ in range(400)]
    return sum(first_error(problem, author.solve(problem)) is None for problem in problems) / len(problems)


def test_carelessness_decides_how_often_an_author_is_right():
    assert _share_right(0) == 1
    assert 0.35 < _share_right(1) < 0.55
    assert _share_right(3) < 0.2


def test_a_solution_is_text_that_splits_into_its_steps():
    rng = random.Random(4)
    for _ in range(100):
        written = Author(rng, 2).solve(generate(rng))
        assert steps.split("\n".join(written)) == written
        assert "\\boxed{" in written[-1]


def test_carries_by_hand():
    assert carries("+", 95, 17) == [0, 1]
    assert carries("+", 12, 34) == []
    assert carries("-", 503, 17) == [0, 1]


def test_wrong_results_are_wrong_and_not_negative():
    rng = random.Random(5)
    for symbol, left, right in [("+", 95, 17), ("-", 503, 17), ("*", 13, 7), ("/", 84, 4), ("-", 5, 4)]:
        for _ in range(50):
            value = wrong_result(rng, symbol, left, right)
            assert value != calculate(symbol, left, right)
            assert value >= 0
