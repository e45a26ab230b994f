"""Literal numbers in one spelling."""

from tests.unprm.answers.support import apart, same


@same(
    ["1 1/2", "1.5", r"\frac{3}{2}", r"1\frac12", "3/2", r"\frac{1}{2}+1", "150/100"],
    ["3.54e-07", r"3.54 \times 10^{-7}", "0.000000354"],
    ["1,234,567", "1234567", r"1{,}234{,}567", r"1,\!234,\!567"],
    ["3 million dollars", r"\$3 million", "3000000"],
    ["2x10^3", "2000", r"2\times 10^3"],
    ["twenty-five", "25"],
    ["one hundred and five", "105"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["1,234", "1, 234", "(1,234)"],
    ["two three", "23", "5"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
