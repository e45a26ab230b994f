"""Words are no stronger than corrected p-values, and name a margin where two ways are called equal."""

import numpy as np
import pytest

from research.comparisons import compare, grouped, note, p_within, sentences
from training.evaluate.bootstrap import Estimate

QUESTIONS = 200


def _difference(mean, spread):
    """Of outcomes whose mean and standard deviation are just these."""
    noise = np.random.default_rng(0).normal(0, 1, QUESTIONS)
    return Estimate.mean((mean + spread * (noise - noise.mean()) / noise.std())[None])


@pytest.mark.parametrize(
    ("mean", "spread", "outcome"),
    [
        (0.05, 0.1, "better"),  # standard error 0.7 points
        (-0.05, 0.1, "worse"),
        (0.0, 0.02, "as good"),  # 0.14 points, and half a point for what 200 questions may have missed
        (0.0005, 0.02, "as good"),
        (0.003, 0.05, "open"),
        (0.0, 0.1, "open"),
    ],
)
def test_what_may_be_said(mean, spread, outcome):
    assert compare({"a": _difference(mean, spread)}, 0.01)["a"].outcome == outcome


def test_of_a_family_each_is_held_against_more():
    alone = compare({"a": _difference(0.017, 0.1)}, 0.01)["a"]
    assert alone.outcome == "better"
    family = compare({"a": _difference(0.017, 0.1), "b": _difference(0.0, 0.1), "c": _difference(0.001, 0.1)}, 0.01)
    assert family["a"].p == pytest.approx(3 * alone.p)
    assert family["a"].outcome == "open"
    assert family["a"].difference.interval().low > 0


def test_equality_is_corrected_too():
    difference = _difference(0.0, 0.01)
    assert compare({"a": difference}, 0.01)["a"].outcome == "as good"
    many = {"a": difference, **{str(k): _difference(0.005, 0.05) for k in range(5)}}
    assert compare(many, 0.01)["a"].outcome == "open"


def test_sentences_are_plain():
    differences = {("hmr", "prm"): _difference(0.05, 0.1), ("wrf", "prm"): _difference(0.0, 0.1)}
    said = sentences(compare(differences, 0.01))
    assert said.startswith("hmr is better than prm (+5.0 [+3.")
    assert "; wrf and prm can't be told apart (" in said
    nothing = Estimate.mean(np.zeros((3, QUESTIONS)))
    assert sentences(compare({("a", "b"): nothing}, 0.01)) == "a is as good as b (+0.0 [+0.0, +0.0], p = 1.000)"
    assert "can't be told apart" in sentences(compare({("a", "b"): Estimate.mean(np.zeros((3, 20)))}, 0.01))
    small = sentences(compare({("a", "b"): _difference(0.001, 0.002)}, 0.01))
    assert small.startswith("a is better than b, by less than 1 point (+0.1 ")


def test_ways_are_grouped_by_what_may_be_said():
    family = compare({"a": _difference(0.05, 0.1), "b": _difference(0.06, 0.1), "c": _difference(-0.05, 0.1)}, 0.01)
    said = grouped(family)
    assert said.startswith("better: a (+5.0 ")
    assert ", b (+6.0 " in said
    assert "; worse: c (-5.0 " in said


def test_the_note_says_what_intervals_are_over():
    assert "over questions and training seeds." in note(4, 0.03, 3)
    assert "not over training seeds, of which there is one." in note(4, 0.03, 1)
    assert "less than 3 points" in note(4, 0.03, 0)
    assert "Holm" not in note(1, 0.03, 0)


def test_a_difference_of_exactly_nothing_shows_as_much_as_there_are_questions():
    for questions in (20, 1000):
        outcomes = np.random.default_rng(7).random((3, questions))
        assert (p_within(Estimate.mean(outcomes - outcomes), 0.01) < 0.001) == (questions == 1000)
    for questions in (9, 10):
        assert (p_within(Estimate.mean(np.full((1, questions), 0.5)), 1.0) == 1) == (questions == 9)


def test_a_small_difference_has_its_interval_within_the_margin():
    rng = np.random.default_rng(8)
    for shift in np.linspace(0, 0.3, 40):
        estimate = Estimate.mean(rng.normal(shift, 1, (1, QUESTIONS)))
        narrow = estimate.interval(0.9)
        for margin in (0.1, 0.2, 0.4):
            assert p_within(estimate, margin) >= 0.05 or (-margin < narrow.low and narrow.high < margin)
