"""Words beside a number, and words alone."""

from tests.unprm.answers.support import apart, same


@same(
    [r"\text{Monday}", "Monday", "monday", r"\textbf{MONDAY}"],
    [r"\text{(A)}", "A", "(A)", r"\textbf{A}", r"\mathrm{A}"],
    [r"\text{odd}", "odd", "$odd$", "Odd."],
    [r"\text{CBAD}", "CBAD"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"5\text{ or more}", "5", r"5\text{ or less}"],
    [r"3\text{ p.m.}", r"3\text{ a.m.}", "3"],
    ["yes", "no", "maybe"],
    [r"\text{A, then B}", r"\text{B, then A}"],
    ["5 years older", "5 years younger", "5"],
    ["5 wins", "5 losses", "5"],
    ["5 pairs", "5"],
    ["3 millionths", "3"],
    ["5 factorial", "5"],
    ["50 basis points", "50"],
    ["5 each", "5 total"],
    ["two thirds", "2", "one third"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
