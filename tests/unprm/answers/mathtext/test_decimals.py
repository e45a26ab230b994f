"""Long decimals that are the rounding of a simple number."""

from tests.unprm.answers.support import apart, same


@same(
    ["0.3333333333", r"\frac13", r"0.\overline{3}"],
    ["9.42477796", r"3\pi", "3π", "9.42477796076938"],
    ["4.123105625617661", r"\sqrt{17}", "√17", r"\sqrt17"],
    [r"\frac{1}{432}", r"2.314814814815 \times 10^{-3}"],
    ["0.30000000000000004", "0.3"],
    ["2.9999999999999996", "3"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["1.0000000000000001", "1", "1.00000000001", "0.9999999999"],
    ["0.123456789", "0.123456788"],
    ["0.333", r"\frac13", "0.33", "0.3333"],
    ["3.14", r"\pi", "3.1416"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
