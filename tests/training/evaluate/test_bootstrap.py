"""Intervals cover as often as they say, whatever varies; p-values by hand."""

from dataclasses import astuple

import numpy as np
import pytest

from training.evaluate.metrics import Estimate, FirstErrorFigures, Share, holm

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


def test_wilson_s_intervals_of_shares():
    for outcomes, expected in (
        ([1, 1, 1, 0, 1, 0, 1, 1, 0, 1], (0.7, 0.3968, 0.8922)),
        ([1, 1, 1, 1, 1], (1.0, 0.5655, 1.0)),
        ([0, 0, 0, 0, 0], (0.0, 0.0, 0.4345)),
    ):
        found = Share.of(outcomes), Estimate.mean(np.array(outcomes, dtype=float)).share
        assert [astuple(each) for each in found] == [pytest.approx(expected, abs=2e-3)] * 2
    assert Share.of([0.5] * 5).low < 0.4  # that all are alike is chance, too
    rng = np.random.default_rng(4)
    for count, truth in ((5, 0.9), (20, 0.5), (100, 0.97)):
        drawn = [Share.of(rng.random(count) < truth) for _ in range(2000)]
        assert 0.9 < np.mean([each.low <= truth <= each.high for each in drawn]) < 0.99


def test_an_f1_of_few_solutions_has_an_interval_that_covers_it():
    assert astuple(FirstErrorFigures.of([1] * 5 + [None] * 5, [1] * 5 + [None] * 5).f1_share) == pytest.approx(
        (1.0, 10 / (10 + 1.96**2), 1.0), abs=1e-4
    )
    assert FirstErrorFigures.of([0] * 5, [1] * 4 + [None]).f1_high > 0.2
    rng = np.random.default_rng(5)
    for wrong, right, found, spared in ((30, 30, 0.5, 0.5), (100, 40, 0.3, 0.9), (15, 60, 0.8, 0.95)):
        truth = 2 * found * spared / (found + spared)
        hits = 0
        for _ in range(1000):
            predicted = [0 if hit else 1 for hit in rng.random(wrong) < found]
            predicted += [None if hit else 0 for hit in rng.random(right) < spared]
            share = FirstErrorFigures.of(predicted, [0] * wrong + [None] * right).f1_share
            hits += share.low <= truth <= share.high
        assert 920 < hits < 990


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
