"""Linear expressions, as they are written."""

import pytest

from unprm.answers.mathtext.evaluation import Evaluator
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.linear import degree, linear


@pytest.mark.parametrize(
    ("text", "slope", "rest"),
    [("2x+3", 2, 3), ("3-x", -1, 3), ("4(x-1)/2", 2, -2), ("7", 0, 7), ("-(2x-5)+x", -1, 5)],
)
def test_slope_and_rest(text, slope, rest):
    assert [Evaluator(100).value(part) for part in linear(parse(text), "x")] == [slope, rest]


@pytest.mark.parametrize("text", [r"\sin x", "x x", "x^{2}", "1/x"])
def test_what_is_not_linear_as_written(text):
    assert linear(parse(text), "x") is None


@pytest.mark.parametrize(
    ("text", "of_x"), [("y", 0), ("x", 1), ("x(x+1)", 2), ("(x+1)^{2}-x", 2), (r"\sin x", None), ("x^{3}", None)]
)
def test_degree(text, of_x):
    assert degree(parse(text), "x") == of_x
