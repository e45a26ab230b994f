"""Figures claim no more than corrected p-values show, and name a margin where two ways are called equal."""

import numpy as np
import pytest

from research.comparisons import compare, note, p_within
from training.evaluate.metrics import Estimate

QUESTIONS = 200


def _difference(mean, spread):
    """Of outcomes whose mean and standard deviation are just these."""
    noise = np.random.default_rng(0).normal(0, 1, QUESTIONS)
    return Estimate.mean(mean + spread * (noise - noise.mean()) / noise.std())


@pytest.mark.parametrize(
    ("mean", "spread", "said"),
    [
        (0.05, 0.1, "p < 0.001"),  # standard error 0.7 points
        (0.001, 0.002, "p < 0.001"),
        (0.0, 0.02, ": as good"),  # 0.14 points, and half a point for what 200 questions may have missed
        (0.0005, 0.02, ": as good"),
        (0.0, 0.1, "p = 1.000"),
    ],
)
def test_what_may_be_said(mean, spread, said):
    assert compare({"a": _difference(mean, spread)}, 0.01)["a"].endswith(said)


def test_of_a_family_each_is_held_against_more():
    difference = _difference(0.017, 0.1)
    assert compare({"a": difference}, 0.01)["a"].endswith(f"p = {difference.p:.3f}")
    family = compare({"a": difference, "b": _difference(0.0, 0.1), "c": _difference(0.001, 0.1)}, 0.01)
    assert family["a"].endswith(f"p = {3 * difference.p:.3f}")


def test_equality_is_corrected_too():
    difference = _difference(0.0, 0.01)
    assert compare({"a": difference}, 0.01)["a"].endswith("as good")
    many = {"a": difference, **{str(k): _difference(0.005, 0.05) for k in range(5)}}
    assert not compare(many, 0.01)["a"].endswith("as good")


def test_the_note_says_what_intervals_are_over():
    assert "over questions." in note(4, 0.03)
    assert "less than 3 points" in note(4, 0.03)
    assert ("Holm" in note(4, 0.03), "Holm" in note(1, 0.03)) == (True, False)


def test_a_difference_of_exactly_nothing_shows_as_much_as_there_are_questions():
    for questions in (20, 1000):
        outcomes = np.random.default_rng(7).random(questions)
        assert (p_within(Estimate.mean(outcomes - outcomes), 0.01) < 0.001) == (questions == 1000)
    for questions in (9, 10):
        assert (p_within(Estimate.mean(np.full(questions, 0.5)), 1.0) == 1) == (questions == 9)


def test_a_small_difference_has_its_interval_within_the_margin():
    rng = np.random.default_rng(8)
    for shift in np.linspace(0, 0.3, 40):
        estimate = Estimate.mean(rng.normal(shift, 1, QUESTIONS))
        narrow = estimate.interval(0.9)
        for margin in (0.1, 0.2, 0.4):
            assert p_within(estimate, margin) >= 0.05 or (-margin < narrow.low and narrow.high < margin)
