"""Intervals cover as often as they say, whatever varies; p-values by hand."""

import numpy as np
import pytest

from training.evaluate.bootstrap import Estimate, holm
from training.evaluate.metrics import Share

QUESTIONS = 100
TRIALS = 200


def _covered(make, truth=0.0):
    intervals = [Estimate.mean(make()).interval() for _ in range(TRIALS)]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / TRIALS


def test_an_interval_covers_what_questions_change():
    rng = np.random.default_rng(2)
    assert 0.91 < _covered(lambda: rng.normal(0, 1, QUESTIONS)) < 0.98


def test_an_interval_covers_what_draws_change_although_they_are_not_resampled():
    rng = np.random.default_rng(3)
    assert 0.91 < _covered(lambda: (rng.random((QUESTIONS, 16)) < 0.3).mean(axis=1), 0.3) < 0.98


def test_questions_of_two_prms_are_paired():
    rng = np.random.default_rng(6)
    outcomes = rng.random(QUESTIONS)
    difference = Estimate.mean(outcomes + 0.1) - Estimate.mean(outcomes)
    assert difference.interval().low == pytest.approx(0.1)
    assert difference.p < 0.001


def test_a_difference_of_exactly_nothing_shows_as_much_as_there_are_questions():
    for questions in (20, 1000):
        outcomes = np.random.default_rng(7).random(questions)
        nothing = Estimate.mean(outcomes - outcomes)
        assert nothing.interval() == Share(0.0, 0.0, 0.0)
        assert nothing.p == 1


def test_few_questions_that_all_point_one_way_are_no_more_than_a_sign_test_says():
    outcomes = np.zeros(200)
    outcomes[:5] = 1
    assert Estimate.mean(outcomes).p == pytest.approx(2 / 2**5, rel=0.6)  # percentiles of resamples: 0.013


def test_a_handful_of_questions_shows_nothing():
    for questions in (9, 10):
        estimate = Estimate.mean(np.full(questions, 0.5))
        assert (estimate.p == 1) == (questions == 9)
    # a question without anything to hit is none
    assert Estimate.ratio(np.ones(20), np.array([1.0] * 9 + [0.0] * 11)).p == 1


def test_p_and_interval_agree():
    rng = np.random.default_rng(8)
    for shift in np.linspace(0, 0.3, 40):
        estimate = Estimate.mean(rng.normal(shift, 1, QUESTIONS))
        interval = estimate.interval()
        assert (estimate.p < 0.05) == (interval.low > 0 or interval.high < 0)


def test_a_ratio_is_of_sums():
    ratio = Estimate.ratio(np.array([3.0, 0.0, 1.0]), np.array([4.0, 0.0, 1.0]))
    assert ratio.value == 0.8
    assert 0.8 <= ratio.share.high <= 1


def test_holm_by_hand():
    # 3 × 0.01; 2 × 0.04; 1 × 0.03 would be less than the one before it
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"a": 0.06, "b": 0.03, "c": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
