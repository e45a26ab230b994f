"""Words beside a number, and words alone."""

from tests.unprm.answers.support import apart, same


@same(
    [r"\text{Monday}", "Monday", "monday", r"\textbf{MONDAY}"],
    [r"\text{(A)}", "A", "(A)", r"\textbf{A}", r"\mathrm{A}"],
    [r"\text{odd}", "odd", "$odd$", "Odd."],
    [r"\text{CBAD}", "CBAD"],
    ["A, B, D", "ABD", "A, B and D"],
    ["no solution", "None", r"\emptyset", "There are no real solutions", r"\{\}", "No such number exists"],
    ["infinitely many", "infinitely many solutions", "There are infinitely many solutions"],
    ["a triangle", "triangle", "the triangle"],
    ["on Monday", "Monday"],
    ["due east", "east"],
    ["mgh", "m g h", r"m \cdot g \cdot h"],
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
