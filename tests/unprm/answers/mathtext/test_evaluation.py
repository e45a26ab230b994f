"""Values of closed expressions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unprm.answers.support import generated
from unprm.answers.mathtext.evaluation import Evaluator, Undecided, Undefined
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Unreadable

NODES = 10_000


numbers = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)


def latex(value):
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def combined(pair):
    """An expression of two others, with its value."""
    (left, a), (right, b), operator = pair
    return {
        "+": (f"{left}+({right})", a + b),
        "-": (f"\\left({left}\\right)-\\left({right}\\right)", a - b),
        "*": (f"({left})({right})", a * b),
        "/": (f"\\frac{{{left}}}{{{right}+2000}}", a / (b + 2000)) if b > -2000 else (left, a),
        "^": (f"({left})^{{2}}", a * a),
    }[operator]


leaves = numbers.map(lambda value: (latex(value), value))
expressions = st.recursive(
    leaves, lambda inner: st.tuples(inner, inner, st.sampled_from("+-*/^")).map(combined), max_leaves=5
)


@generated
@given(expressions)
def test_an_expression_is_equal_to_its_value_and_to_nothing_near(answers, expression):
    text, value = expression
    near = value + Fraction(1, 10**30)
    assert answers.classes([text, latex(value), f"{near.numerator}/{near.denominator}"]) == [0, 0, 1]


@generated
@given(st.integers(2, 10**6), numbers, st.integers(2, 30))
def test_a_root_has_one_key_however_it_is_written(answers, radicand, factor, square):
    exact = f"{latex(factor)}\\sqrt{{{radicand}}}"
    same = [
        f"{latex(factor / square)}\\sqrt{{{radicand * square**2}}}",
        f"{latex(factor)}e^{{\\frac12\\ln {radicand}}}",
    ]
    assert answers.classes([exact, *same]) == [0, 0, 0]
    assert not answers.equal(exact, f"{latex(factor)}\\sqrt{{{radicand}}}+10^{{-40}}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\sin\frac{\pi}{2}", 1),
        ("\\tan 45°", 1),
        (r"\sec 0+\csc\frac{\pi}{2}", 2),
        (r"\log_{2} 8", 3),
        (r"\ln e^{3}", 3),
        (r"\arccos 1", 0),
        (r"|{-\sqrt{2}}|^{2}", 2),
        (r"\binom{5}{7}", 0),
        (r"(-8)^{\frac{2}{3}}", 4),
        (r"0^{\sqrt{2}}", 0),
        (r"1^{\sqrt{2}}", 1),
        (r"e^{\pi i}", -1),
    ],
)
def test_values(text, value):
    assert Evaluator(NODES).value(parse(text)) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (r"\ln 0", Undefined),
        (r"\tan\frac{\pi}{2}", Undecided),
        ("0^{0}", Undefined),
        ("9^{9^{9}}", Undecided),
        ("100000000!", Undecided),
        (r"\binom{99999999}{44444444}", Undecided),
        (r"\sin(10^{50})", Undecided),
        ("(-4)!", Unreadable),
        (r"\binom{\frac{1}{2}}{3}", Unreadable),
    ],
)
def test_what_has_no_value(text, problem):
    with pytest.raises(problem):
        Evaluator(NODES).value(parse(text))


@pytest.mark.parametrize("text", [r"\sqrt{-2}", "(-2)^{0.5}", r"(-2)^{\sqrt{2}}", r"\ln(-2)", r"\arcsin 2"])
def test_what_is_undefined_over_the_reals_alone(text):
    Evaluator(NODES).value(parse(text))
    with pytest.raises(Undefined):
        Evaluator(NODES, real=True).value(parse(text))


def test_a_value_costs_no_more_nodes_than_are_left():
    tree = parse("1+2*3")
    evaluator = Evaluator(5)
    assert evaluator.value(tree) == 7
    assert evaluator.left == 0
    with pytest.raises(Undecided):
        Evaluator(4).value(tree)
