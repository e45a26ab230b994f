"""The engine that scores by log-probabilities."""

from dataclasses import replace
from math import log1p

import pytest

from tests.support import columns
from unprm.calibration import sigmoid
from unprm.engines.uncertainty import READOUT, Readout, UncertaintyEngine

ALL_DIFFERENT = Readout(intercept=3.0, mean=-0.5, largest=-0.25, total=-0.125, top3=-1.0, fitted="nothing")
STEPS = ((-1.0, -5.0, -0.5, -3.0), (-2.0,))


def test_a_step_is_scored_by_four_surprisals_of_its_tokens():
    engine = UncertaintyEngine(8, ALL_DIFFERENT)
    item = replace(engine.format.encode("p", ["a", "b"]), logprobs=STEPS)
    # means 2.375 and 2, largest 5 and 2, sums 9.5 and 2, means of the three largest 3 and 2
    by_hand = (
        sigmoid(3 - 0.5 * log1p(2.375) - 0.25 * log1p(5) - 0.125 * log1p(9.5) - log1p(3)),
        sigmoid(3 - 1.875 * log1p(2)),
    )
    scores = columns(engine.score([item, item]))
    assert scores.values == [pytest.approx(by_hand)] * 2
    assert (scores.computed, scores.tokens) == ([0, 0], [0, 0])
    assert (
        engine.format.text(item)
        .splitlines()[0]
        .endswith("4 tokens: mean 2.3750, largest 5.0000, total 9.5000, top3 3.0000")
    )


def test_models_with_other_coefficients_differ_in_their_digest():
    assert UncertaintyEngine(8).description.digest != UncertaintyEngine(8, ALL_DIFFERENT).description.digest


def test_surer_steps_score_higher_and_either_verdict_is_possible():
    assert READOUT.score([-0.01] * 10) > 0.5 > READOUT.score([-3.0] * 30)
