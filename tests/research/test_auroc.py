"""AUROC of first wrong steps, over all pairs and within pairs of like length and place."""

from dataclasses import replace

import pytest

from research.auroc import ScoredSteps, auroc


def solution(question, scores, lengths, wrong):
    return ScoredSteps(question, scores, lengths, wrong)


def test_pairs_are_won_lost_or_shared():
    solutions = [
        solution("a", (0.9, 0.2), (10, 10), True),  # right at place 0, wrong at place 1
        solution("b", (0.2, 0.2), (10, 10), False),
        solution("c", (0.1, 0.8), (10, 10), False),
    ]
    # of the right steps 0.9, 0.2, 0.2, 0.1, 0.8 against the wrong one, 0.2
    assert auroc(solutions, matched=False).value == pytest.approx((1 + 0.5 + 0.5 + 0 + 1) / 5)
    assert auroc(solutions, matched=True).value == pytest.approx((0.5 + 1) / 2)


def test_matched_pairs_are_of_like_length_at_the_same_place():
    solutions = [
        solution("a", (0.5,), (100,), True),
        solution("b", (0.9,), (126,), False),  # too long
        solution("c", (0.1,), (80,), False),
        solution("d", (0.9,), (79,), False),  # too short
    ]
    assert auroc(solutions, matched=True).value == 0
    assert auroc(solutions, matched=False).value == pytest.approx(2 / 3)


def test_length_and_place_say_nothing_within_matched_pairs():
    solutions = [
        solution(f"{k}", tuple(-float(place) for place in range(4)), (10, 10, 10, 10), k % 2 == 0) for k in range(40)
    ]
    assert auroc(solutions, matched=False).value > 0.8  # errors come late
    assert auroc(solutions, matched=True).value == 0.5


def test_the_interval_is_over_questions():
    few = [solution(f"{k}", (float(k % 3 > 0), 0.5), (10, 10), True) for k in range(6)]
    few += [solution(f"{k}", (0.9, float(k % 2)), (10, 10), False) for k in range(6)]
    many = [replace(each, question=f"{k}/{each.question}") for k in range(20) for each in few]
    narrow, wide = (auroc(each, matched=True).interval() for each in (many, few))
    assert narrow.mean == pytest.approx(wide.mean) == pytest.approx(0.5)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 3


def test_without_a_pair_there_is_no_figure():
    with pytest.raises(ValueError, match="no pair"):
        auroc([solution("a", (0.5,), (10,), False)], matched=True)
