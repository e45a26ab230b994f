"""Values of closed expressions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unprm.answers.support import apart, generated, same
from unprm.answers.mathtext.evaluation import Evaluator
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Unreadable
from unprm.answers.mathtext.values import Undecided, Undefined

NODES = 10_000


@same(
    [r"\binom{5}{2}", "10", r"{5 \choose 2}", r"\frac{5!}{2!\,3!}", r"\gcd(20,30)"],
    [
        r"\lfloor 3.7 \rfloor", "3", r"|-3|", r"\lceil \frac{5}{2} \rceil", r"\log_2 8", r"\log 1000",
        r"\ln e^3",
    ],
    ["2^{10}", "1024", "2^10", "4^5"],
    ["100!", r"100\cdot 99!"],
    [r"10^{100}", r"10^{50}\cdot 10^{50}"],
    [r"\frac{\sqrt{3}}{3}", r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{1}{\sqrt3}", r"\tan 30^\circ"],
    [
        r"2\sqrt{3}", r"\sqrt{12}", r"\frac{6}{\sqrt{3}}", r"4\sin 60^\circ", r"4\sin\frac{\pi}{3}",
        r"2 \cdot 3^{1/2}",
    ],
    [r"1+\sqrt2", r"\sqrt{3+2\sqrt{2}}", r"\frac{1}{\sqrt{2}-1}"],
    [r"\sqrt[3]{-8}", "-2", "(-8)^{1/3}"],
    [r"\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt6}", "0", "e^{i\\pi}+1", r"\sin \pi"],
    ["2i", r"\sqrt{-4}", "(1+i)^2", r"-\frac{2}{i}"],
    ["1+2i", "i(2-i)", "2i+1"],
    [r"\frac{9}{4}\pi", r"\frac94\pi", r"\frac{9\pi}{4}", r"2.25\pi", r"9\pi/4"],
    [r"\frac{n!}{(n-1)!}", "n"],
    [r"2\ln 2", r"\ln 4"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["1/2004!", "1/2006!", "1/2005!", "0"],
    ["2^{-99}", "2^{-98}", "0"],
    ["1-1/e", "1+1/e"],
    [r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", r"\frac{1}{3 \cdot 2^{2006}}", r"\frac16"],
    ["9^{9^{9}}", "9^{9^{9}}+1", "9^{9^{8}}"],
    ["e^{1000}", "e^{1000}+1", "1-e^{-1000}", "1", r"\tanh 500", r"2^{\frac{1}{2^{1000}}}"],
    ["1+10^{-100}", "1", r"1+10^{-100}\pi", r"\cos(10^{-60})"],
    ["100000000!", "100000001!"],
    ["10^{1000}", "10^{1000}+1"],
    ["12345678901234567890", "12345678901234567891"],
    ["e^{\\pi\\sqrt{163}}", "262537412640768744"],
    [r"\ln x^2", r"2\ln x", r"\log x", r"\ln x"],
    ["5!", "5", "120.5"],
    [r"\sum_{k=1}^{4} k", r"\sum_{k=1}^{5} k", r"\sum_{k=1}^{4} 2k"],
    [r"\frac{1}{0}", r"\frac{2}{0}", r"\infty", r"-\infty", r"\frac{0}{0}"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))


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
        (r"\lfloor\pi\rfloor+\lceil\pi\rceil", 7),
        (r"\max(\sqrt{2},2,\frac{1}{\sqrt{2}})", 2),
        (r"|{-\sqrt{2}}|^{2}", 2),
        (r"\gcd(12,18)", 6),
        (r"\lcm(2,3)", 6),
        (r"\frac{\frac{3}{2}!}{\frac{1}{2}!}-\frac{3}{2}", 0),
        (r"\binom{\frac{1}{2}}{3}", Fraction(1, 16)),
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
        (r"\tan\frac{\pi}{2}", Undefined),
        ("(-4)!", Undefined),
        ("0^{0}", Undefined),
        (r"\tanh 500", Undecided),
        ("9^{9^{9}}", Undecided),
        ("100000000!", Undecided),
        (r"\binom{99999999}{44444444}", Undecided),
        (r"\sin(10^{50})", Undecided),
        (r"\gcd(\frac{1}{2},3)", Unreadable),
        (r"\max(i,1)", Unreadable),
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
