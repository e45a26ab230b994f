"""Which elected answers are accepted at a risk."""

import math

import numpy as np
import pytest
from scipy.stats import fisher_exact

from unprm.election.acceptance import (
    DOUBT,
    Statistics,
    VoteCalibration,
    _as_right_by_chance,
    certainty,
    disorder,
    read,
    threshold,
)
from unprm.errors import RecordInvalid


def test_certainty_is_share_times_highest_reward():
    classes, rewards = (0, 1, 0, None), (0.8, 0.4, None, 0.9)
    assert certainty(classes, rewards, (0, 2)) == pytest.approx(0.8 / 1.2 * 0.8)
    assert certainty(classes, None, (0, 2)) == 0.5
    assert certainty(classes, (0.0, 0.0, None, 0.9), (0, 2)) == 0.5  # no reward says anything


def test_without_errors_as_many_questions_are_needed_as_the_risk_takes():
    needed = math.ceil(math.log(0.1) / math.log(0.95))
    right = [(k / 100, True) for k in range(needed)]
    assert threshold(right, 0.05, 0.9) == 0
    assert threshold(right[1:], 0.05, 0.9) is None


def test_it_ends_where_errors_begin():
    elections = [(1.0, True)] * 100 + [(0.5, False)] * 30 + [(0.2, True)] * 1000
    assert threshold(elections, 0.05, 0.9) == 1.0
    assert threshold(elections, 0.5, 0.9) == 0.2
    assert threshold([(0.5, True), (0.5, False)] * 10_000, 0.1, 0.9) is None  # far more than 0.1 are wrong


def _quarters(*rights, size=40):
    """Elections of falling certainty: of each of four groups this share is right."""
    return [
        (1 - quarter / 4 - k / 1000, k < round(share * size))
        for quarter, share in enumerate(rights)
        for k in range(size)
    ]


@pytest.mark.parametrize(
    "rights", [(1, 0.8, 0.5, 0.2), (0.5, 0.5, 0.5, 0.5), (0.7, 0.8, 0.7, 0.8), (1, 1, 1, 1), (0, 0, 0, 0)]
)
def test_elections_in_order_or_out_of_it_by_chance_are_calibrated(rights):
    assert disorder(_quarters(*rights)) is None


def test_few_or_equally_certain_elections_are_no_evidence():
    for elections in ([], [(0.5, True)], [(0.5, k % 2 > 0) for k in range(90)], [(0.9, False), (0.1, True)] * 2):
        assert disorder(elections) is None


def test_answers_of_lower_certainty_that_are_more_often_right_are_told():
    """As where the share of an answer, which decides some of the questions, is low but reliable."""
    assert disorder(_quarters(0.9, 0.3, 0.9, 0.1)) == (
        "its answers of lower certainty are more often right (90 % of 40, against 30 % of 40 above them)"
    )


@pytest.mark.parametrize(("higher", "lower"), [((12, 30), (25, 30)), ((0, 7), (3, 9)), ((7, 7), (9, 9))])
def test_the_comparison_of_two_groups_is_fisher_s(higher, lower):
    table = [[lower[0], lower[1] - lower[0]], [higher[0], higher[1] - higher[0]]]
    groups = [[k < right for k in range(count)] for right, count in (higher, lower)]
    assert _as_right_by_chance(*groups) == pytest.approx(fisher_exact(table, "greater").pvalue)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_vote_whose_condition_holds_is_seldom_refused(share):
    rng = np.random.default_rng(0)
    drawn = [zip(rng.random(200), rng.random(200) < share, strict=True) for _ in range(400)]
    assert sum(disorder(elections) is not None for elections in drawn) <= 400 * DOUBT


def _calibrated(draws, count, risk, confidence, certainties, wrong):
    """How often a threshold lets more than the risk through, over draws of calibration questions."""
    rng = np.random.default_rng(0)
    population = np.sort(certainties(rng, 200_000))[::-1]
    risks = np.cumsum(wrong(population)) / np.arange(1, len(population) + 1)
    violations = 0
    for _ in range(draws):
        values = certainties(rng, count)
        rights = rng.random(count) >= wrong(values)
        lowest = threshold(zip(values.tolist(), rights.tolist(), strict=True), risk, confidence)
        if lowest is not None:
            violations += risks[np.searchsorted(-population, -lowest, side="right") - 1] > risk
    return violations


@pytest.mark.parametrize("risk", [0.05, 0.2])
@pytest.mark.parametrize(
    ("certainties", "wrong"),
    [
        (lambda rng, count: rng.random(count), lambda values: 0.6 * (1 - values) ** 1.5),
        (lambda rng, count: np.ceil(rng.random(count) * 8) / 8, lambda values: 0.7 * (1 - values)),
        (lambda rng, count: rng.random(count), None),  # every answer is wrong a little more often than allowed
    ],
)
def test_the_risk_is_kept_as_often_as_promised(risk, certainties, wrong):
    draws, confidence = 2000, 0.9
    worst = wrong or (lambda values: np.full(len(values), 1.02 * risk))
    violations = _calibrated(draws, 250, risk, confidence, certainties, worst)
    allowed = draws * (1 - confidence)
    assert violations <= allowed + 3 * math.sqrt(allowed * confidence)


def test_a_calibration_is_kept_and_tells_what_is_outside(tmp_path):
    made = VoteCalibration(
        pool="a pool",
        date="2026-01-31",
        confidence=0.9,
        model=None,
        aggregate="min",
        terms={"alpha": 0.5, "normalization": "minmax"},
        elections={"wrf": [(0.9, True)] * 60},
        ranges={"candidates": (4, 16), "highest_reward": (0.2, 0.9)},
    )
    made.write(tmp_path / "votes.json")
    found = read(tmp_path / "votes.json")
    assert found.threshold("wrf", 0.05) == 0.9
    assert found.threshold("wrf", 0.01) is None
    with pytest.raises(KeyError):
        found.threshold("majority", 0.05)
    assert found.outside(Statistics.from_candidates((0, 0), (0.1, 0.15))) == ["candidates", "highest_reward"]
    assert found.outside(Statistics.from_candidates((0, 0, 1, None), None)) == []


def test_another_file_is_refused_with_the_command_that_makes_one(tmp_path):
    (tmp_path / "votes.json").write_text('{"pool": "a"}')
    with pytest.raises(RecordInvalid, match="calibrate-votes"):
        read(tmp_path / "votes.json")
