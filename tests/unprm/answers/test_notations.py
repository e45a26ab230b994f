"""Notations of numbers beside LaTeX's."""

import pytest

from unprm.answers.canonical import plain_characters
from unprm.answers.equivalence import other_reading


def test_a_comma_is_decimal_only_where_another_answer_shows_it(answers):
    assert answers.classes(["3,5", "3.5"]) == [0, 0]
    assert answers.classes(["3,5", "5, 3"]) == [0, 0]
    assert answers.classes(["3,5", "5, 3", "3.5"]) == [0, 0, 1]
    assert answers.classes(["(3,5)", "3.5"]) == [0, 1]


@pytest.mark.parametrize(
    ("answer", "other"), [("3,5", "3.5"), ("3,500", ""), ("1,2,3", ""), ("5k", "5*1000"), ("5m", "")]
)
def test_other_reading(answer, other):
    assert other_reading(answer) == other


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("x² + 10⁻³", "x^{2} + 10^{-3}"),
        ("a₁₂", "a_{12}"),
        ("½ − √２", r"\frac{1}{2} - \sqrt 2"),
        ("2π ≤ ∞", r"2\pi \leq \infty"),
        ("1 ... 2. . .", r"1 \ldots 2\ldots"),
        ('"5\u200b"\n', "5"),
        ("5 € ", r"5 \unit{euro}"),
    ],
)
def test_plain_characters(text, plain):
    assert plain_characters(text) == plain
