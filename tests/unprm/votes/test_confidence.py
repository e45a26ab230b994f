"""Confidences from log-probabilities, by hand and by what must hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm.votes.confidence import confidence, cut, likelihood, self_certainty, token_confidence

# the likeliest tokens at two places: one where the first is sure, one where two are level
SURE = [math.log(0.98), math.log(0.01)]
UNSURE = [math.log(0.5), math.log(0.5)]
tops = st.lists(st.lists(st.floats(-20, -0.01), min_size=3, max_size=3), min_size=1, max_size=40)


def test_the_likelihood_is_the_geometric_mean():
    assert likelihood([math.log(0.5), math.log(0.125)]) == pytest.approx(0.25)


def test_a_token_is_confident_where_the_others_are_unlikely():
    assert token_confidence(SURE) == pytest.approx(-(math.log(0.98) + math.log(0.01)) / 2)
    assert token_confidence(SURE) > token_confidence(UNSURE) == pytest.approx(math.log(2))


def test_measures_by_hand():
    # confidences of single tokens 1, 2, 3, 4, 5, 0 (two equal alternatives each)
    tokens = [[-value, -value] for value in (1.0, 2.0, 3.0, 4.0, 5.0, 0.0)]
    assert confidence(tokens, "mean", 2) == pytest.approx(2.5)
    assert confidence(tokens, "tail", 2) == pytest.approx(2.5)
    assert confidence(tokens, "tail", 3) == pytest.approx(3.0)
    assert confidence(tokens, "lowest", 2) == pytest.approx(1.5)
    assert confidence(tokens, "lowest", 100) == pytest.approx(2.5)


def test_the_bottom_is_a_tenth_of_the_windows():
    tokens = [[-float(value)] * 2 for value in range(20)]
    assert confidence(tokens, "bottom", 1) == pytest.approx(0.5)  # the lowest two of 20


def test_self_certainty_is_the_divergence_from_uniform():
    assert self_certainty([UNSURE]) == pytest.approx(0)
    shares = [0.98 / 0.99, 0.01 / 0.99]
    assert self_certainty([SURE]) == pytest.approx(sum(0.5 * math.log(0.5 / share) for share in shares))
    assert self_certainty([SURE, UNSURE]) == pytest.approx(self_certainty([SURE]) / 2)


@given(tops, st.integers(1, 50))
def test_no_window_is_below_the_lowest_and_the_bottom_lies_above_it(top_logprobs, window):
    lowest, bottom = (confidence(top_logprobs, measure, window) for measure in ("lowest", "bottom"))
    assert 0 <= lowest <= bottom + 1e-9
    assert lowest <= confidence(top_logprobs, "tail", window) + 1e-9
    assert self_certainty(top_logprobs) >= -1e-9


def test_the_top_share_takes_ties_at_its_end():
    assert cut([1.0, 5.0, 3.0, 3.0], 0.5) == 3.0
    assert cut([1.0, 5.0], 0.01) == 5.0
    assert cut([1.0, 5.0], 1.0) == 1.0


@given(tops)
def test_only_shares_count_for_self_certainty(top_logprobs):
    """Probability that lies outside the alternatives changes nothing."""
    half = [[value - math.log(2) for value in token] for token in top_logprobs]
    assert self_certainty(half) == pytest.approx(self_certainty(top_logprobs), abs=1e-9)
