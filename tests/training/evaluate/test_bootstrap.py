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


def test_an_interval_covers_what_seeds_change_where_questions_change_nothing():
    rng = np.random.default_rng(1)
    for seeds in (3, 5):
        covered = _covered(lambda seeds=seeds: np.repeat(rng.normal(0, 0.1, (seeds, 1)), QUESTIONS, axis=1))
        assert 0.91 < covered < 0.98
    # of one seed nothing is known but the questions
    alone = Estimate.mean(np.full((1, QUESTIONS), 0.1)).interval()
    assert (alone.low, alone.high) == pytest.approx((0.1, 0.1))


def test_an_interval_covers_what_questions_change():
    rng = np.random.default_rng(2)
    assert 0.91 < _covered(lambda: np.repeat(rng.normal(0, 1, (1, QUESTIONS)), 3, axis=0)) < 0.98


def test_an_interval_covers_what_draws_change_although_they_are_not_resampled():
    rng = np.random.default_rng(3)
    assert 0.91 < _covered(lambda: np.repeat((rng.random((1, QUESTIONS, 16)) < 0.3).mean(axis=2), 3, 0), 0.3) < 0.98


def test_an_interval_covers_questions_and_seeds_together():
    rng = np.random.default_rng(4)
    assert _covered(lambda: 0.1 * rng.normal(0, 1, (3, 1)) + rng.normal(0, 1, (1, QUESTIONS))) > 0.93


def test_seeds_of_two_prms_are_not_paired():
    rng = np.random.default_rng(5)
    for spread in (1, 5):  # of the second one's seeds
        covered = 0
        for _ in range(TRIALS):
            first, second = (np.repeat(rng.normal(0, scale, (3, 1)), QUESTIONS, axis=1) for scale in (1, spread))
            interval = (Estimate.mean(first) - Estimate.mean(second)).interval()
            covered += interval.low <= 0 <= interval.high
        assert 0.91 < covered / TRIALS <= 0.99


def test_questions_of_two_prms_are_paired():
    rng = np.random.default_rng(6)
    outcomes = rng.random((1, QUESTIONS))
    difference = Estimate.mean(outcomes + 0.1) - Estimate.mean(outcomes)
    assert difference.interval().low == pytest.approx(0.1)
    assert difference.p < 0.001


def test_seeds_of_one_prm_are_paired_where_outcomes_are_subtracted():
    first = np.repeat([[0.2], [0.5], [0.9]], QUESTIONS, axis=1)
    paired, unpaired = Estimate.mean(first + 0.1 - first), Estimate.mean(first + 0.1) - Estimate.mean(first)
    assert paired.interval().low == pytest.approx(0.1)
    assert unpaired.interval().low < 0


def test_a_difference_of_exactly_nothing_shows_as_much_as_there_are_questions():
    for questions in (20, 1000):
        outcomes = np.random.default_rng(7).random((3, questions))
        nothing = Estimate.mean(outcomes - outcomes)
        assert nothing.interval() == Share(0.0, 0.0, 0.0)
        assert nothing.p == 1


def test_few_questions_that_all_point_one_way_are_no_more_than_a_sign_test_says():
    outcomes = np.zeros((1, 200))
    outcomes[:, :5] = 1
    assert Estimate.mean(outcomes).p == pytest.approx(2 / 2**5, rel=0.6)  # percentiles of resamples: 0.013


def test_a_handful_of_questions_shows_nothing():
    for questions in (9, 10):
        estimate = Estimate.mean(np.full((1, questions), 0.5))
        assert (estimate.p == 1) == (questions == 9)
    # a question without anything to hit is none
    assert Estimate.ratio(np.ones((1, 20)), np.array([1.0] * 9 + [0.0] * 11)).p == 1


def test_p_and_interval_agree():
    rng = np.random.default_rng(8)
    for shift in np.linspace(0, 0.3, 40):
        estimate = Estimate.mean(rng.normal(shift, 1, (1, QUESTIONS)))
        interval = estimate.interval()
        assert (estimate.p < 0.05) == (interval.low > 0 or interval.high < 0)


def test_a_ratio_is_of_sums():
    ratio = Estimate.ratio(np.array([[3.0, 0.0, 1.0]]), np.array([4.0, 0.0, 1.0]))
    assert ratio.value == 0.8
    assert 0.8 <= ratio.share.high <= 1


def test_holm_by_hand():
    # 3 × 0.01; 2 × 0.04; 1 × 0.03 would be less than the one before it
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"a": 0.06, "b": 0.03, "c": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
