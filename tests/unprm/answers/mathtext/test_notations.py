"""Notations of numbers beside LaTeX's."""

import pytest

from tests.unprm.answers.support import apart, same
from unprm.answers.mathtext.notations import other_reading


@same(
    ["1.234.567", "1,234,567", "1234567", "1'234'567", "1_234_567", "12,34,567", "1 234 567"],
    ["1.234,56", "1,234.56"],
    ["3{,}5", "3.5", "3,5"],
    ["€3,50", "3,50 €", "€3.50", "3.50 euros"],
    [r"12,5\%", "12,5 %", "12.5%"],
    ["0,5", "1/2"],
    ["5k", "5000"],
    ["$1.2k", "$1200"],
    ["3万", "30000"],
    ["US$5", "USD 5", "$5"],
    ["Rs. 50", "50 rupees", "₹50"],
    ["1h30", "90 minutes", "1h 30min"],
    ["1 out of 6", "1 in 6", "1/6", "one-sixth", "one sixth"],
    ["three quarters", "3/4"],
    ["0.333...", r"0.\overline{3}", "0.(3)", "1/3"],
    ["3.14...", "3.14"],
    ["3+4j", "3+4i"],
    ["2**0.5", r"\sqrt2", "2^0.5"],
    ["{}_5C_2", "5 choose 2", "C(5,2)", "10"],
    ["(52)_8", "52_8"],
    ["٣٫٥", "3.5"],
    ["১৮", "18", "１８", "๑๘"],
    ["2 dozen", "24", "two dozens"],
    ["4 lakh", "400000"],
)
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["1.234", "1234", "1,2,3,4"],
    ["3,5", "3.6", "35"],
    ["101_2", "101", "101_3"],
    ["5 scores", "5"],
    ["4 lakh", "4 crore"],
    ["A-B-C", "A-C-B"],
    ["10-20%", "10-30%"],
    ["A or B", "A and B"],
)
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))


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
