"""The measures of uncertainty and the Monte Carlo estimators, by hand and by their laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm import uncertainty as u
from unprm.types import Rollout

logprobs = st.lists(st.floats(-50, 0), min_size=1, max_size=60)


def test_entropy_by_hand():
    # exp of the log-probabilities: 0.5 and 0.25 -> z = 2/3, 1/3
    expected = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert u.entropy([math.log(0.5), math.log(0.25)]) == pytest.approx(expected)


def test_entropy_with_the_temperature_of_the_public_code():
    weights = [0.5 ** (1 / 5), 0.25 ** (1 / 5)]
    shares = [weight / sum(weights) for weight in weights]
    expected = -sum(share * math.log(share) for share in shares)
    assert u.entropy([math.log(0.5), math.log(0.25)], temperature=5) == pytest.approx(expected)


def test_the_other_measures_by_hand():
    values = [math.log(0.5), math.log(0.25)]
    assert u.surprisal_sum(values) == pytest.approx(math.log(8))
    assert u.surprisal_mean(values) == pytest.approx(math.log(8) / 2)
    assert u.surprisal_max(values) == pytest.approx(math.log(4))
    assert u.surprisal_top3(values) == pytest.approx(math.log(8) / 2)
    assert u.surprisal_top3([-1.0, -5.0, 0.0, -3.0, -0.5]) == pytest.approx(3.0)
    assert u.perplexity(values) == pytest.approx(math.sqrt(8))
    assert u.normalized_entropy(values) == pytest.approx(u.entropy(values) / math.log(2))


def test_the_three_largest_surprisals_by_hand():
    assert u.surprisal_top3([-1.0, -5.0, -0.5, -3.0]) == pytest.approx(3.0)
    assert u.surprisal_top3([-1.0, -5.0]) == pytest.approx(3.0)


@pytest.mark.parametrize("measure", [*u.MEASURES.values(), u.surprisal_top3])
def test_no_tokens_are_an_error(measure):
    with pytest.raises(ValueError, match="at least one"):
        measure([])


def test_one_token_has_no_entropy():
    assert u.entropy([-3.0]) == 0
    assert u.normalized_entropy([-3.0]) == 0


def test_extreme_values_neither_overflow_nor_vanish():
    assert u.entropy([-1e6, -1e6]) == pytest.approx(math.log(2))
    assert u.entropy([0.0, -1e6]) == pytest.approx(0)


@given(logprobs)
def test_entropy_lies_between_zero_and_log_n(values):
    assert 0 <= u.entropy(values) <= math.log(len(values)) + 1e-9
    assert u.surprisal_max(values) >= u.surprisal_mean(values) - 1e-9


@given(logprobs, st.floats(-20, 0))
def test_entropy_sees_differences_only(values, shift):
    assert u.entropy([value + shift for value in values]) == pytest.approx(u.entropy(values), abs=1e-6)


def _rollouts(*pairs):
    return [Rollout(tuple(values), correct) for values, correct in pairs]


def test_estimators_by_hand():
    rollouts = _rollouts(([-1.0, -3.0], True), ([-1.0], False), ([-0.5, -0.5], True))
    assert u.mc_ppl(rollouts) == pytest.approx(2.5 / 3.5)
    weights = [math.exp(-2), math.exp(-1), math.exp(-0.5)]
    assert u.inverse_ppl(rollouts) == pytest.approx((weights[0] + weights[2]) / sum(weights))
    assert u.frequency(rollouts) == pytest.approx(2 / 3)


def test_mc_ppl_without_right_rollouts_and_without_surprise():
    assert u.mc_ppl(_rollouts(([-1.0], False))) == 0
    assert u.mc_ppl(_rollouts(([0.0], False), ([0.0], True), ([0.0], True))) == pytest.approx(2 / 3)


@given(st.lists(st.tuples(logprobs, st.booleans()), min_size=1, max_size=12))
def test_estimates_lie_in_the_unit_interval(pairs):
    rollouts = _rollouts(*pairs)
    assert all(0 <= estimate(rollouts) <= 1 for estimate in u.ESTIMATORS.values())
