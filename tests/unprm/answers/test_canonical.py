"""The canonical form of an answer."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import TEST_DATA
from unprm.answers.canonical import canonical

DATA = TEST_DATA / "equivalence"
REAL = [json.loads(line) for line in (DATA / "math_answers.jsonl").read_text().splitlines()]
MEGABYTE = 10**6

generated = settings(derandomize=True, deadline=None, max_examples=300)
PIECES = r"""
    { } \ $ ^ _ ( ) [ ] | \frac \sqrt \text{ \boxed{ \boxed 1 0 12 . , 1,234 x i e \pi ! % ° \pm \{ \} =
    < \in \cup \left \right - + * / \sin \log or and \\ ½ ² √ ０ − \, \! {,} cm \begin{pmatrix}
    \end{pmatrix} & ' : ; ~ \infty p.m. 10 3.14 e-7 \sum_{k=1}^{5} 0.\overline{3} \mathbb million ... **
    \mathrm{m} apples The answer is
"""
pieces = st.sampled_from(PIECES.split())
latex_like = st.lists(pieces, max_size=12).map("".join) | st.lists(pieces, max_size=12).map(" ".join)


@pytest.mark.parametrize(
    "unit",
    [r"\boxed{", r"\boxed", r"\boxed{1}", "{", "}", "{}", "\\", "answer is ", "#### ", "$", ". ", "9", "\n"],
)
def test_a_megabyte_is_read_at_once(unit):
    """Quadratic work would take hours on it; the time-out of the test run is the bound."""
    text = unit * (MEGABYTE // len(unit))
    assert canonical(text) == " ".join(text.split())


@pytest.mark.parametrize(
    ("form", "spellings"),
    {
        "6": ["6", "six", "Six", "6\\"],
        r"6\unit{of(apple)}": ["6 apples", "six apples", r"6\text{ apples}"],
        r"6\unit{dollar}": [r"\$6", "$6.00", "6 dollars", r"6\text{ dollars}", "$ 6", r"\text{\$}6", "6 USD"],
        "6%": [r"6\%", "6.0 %"],
        r"6\unit{percent}": ["6 percent", "6 pct"],
        "6°": ["6°", r"6^\circ", r"6^{\circ}"],
        r"6\unit{degC}": [r"6^\circ C", "6°C", r"6^\circ \text{C}", "6 degrees Celsius", r"6^{\circ}\mathrm{C}"],
        "1234": ["1234", "1,234", "1 234", r"1\,234", "1{,}234", r"1,\!234"],
        "1, 2": ["1,2", "1, 2", r"1\text{ and }2", "$1$ and $2$", "1 and 2"],
        "(1, 234)": ["(1,234)", r"\left(1, 234\right)"],
        r"2\sqrt{3}": [r"2\sqrt3", r"2 \sqrt{3}", "2√3", r"$2\,\sqrt{3}$"],
        r"x=2\sqrt{3}": [r"x=2\sqrt{3}", r"x = 2\sqrt3"],
        "monday": ["Monday", r"\text{Monday}", r"\textbf{monday}.", r"\mbox{ Monday }"],
        r"\emptyset": ["No solution", r"\text{no  solution}", r"\text{No Solution.}"],
        "C": ["C", r"\text{C}", r"\mathrm{C}", "C."],
        "x=[-2, 5]": [r"x \in [-2,5]", r"x∈\left[-2,\,5\right]"],
        r"10\unit{cm2}": ["10 cm^2", r"10\text{ cm}^2", r"10\mbox{ cm}^{2}", "10 square centimeters", "10 sq cm"],
        r"10\unit{week}": ["10weeks", "10 weeks", r"10\text{ weeks}"],
        r"9\unit{m}": [r"9\mathrm{~m}", "9 meters", "9 m", r"9\unit{m}"],
        r"9\unit{m s-1}": [r"9\text{ m/s}", "9 m/s", "9 meters per second", r"9 \mathrm{~m} / \mathrm{s}"],
        r"9\unit{m s-2}": [r"9 \mathrm{~m} / \mathrm{s}^2", r"9\mathrm{m/s^2}", "9 m/s^2"],
        r"2\unit{h}30\unit{min}": ["2 hours 30 minutes", r"2\text{ hours }30\text{ minutes}", "2 hr 30 mins"],
        "10cm": ["10cm"],
        r"x^{2}+1": ["x^2+1", "x² + 1", "f(x) = x^{2}+1", r"x^2\! + 1"],
        "": ["", "  ", "$$"],
    }.items(),
)  # fmt: skip
def test_canonical(form, spellings):
    assert {spelling: canonical(spelling) for spelling in spellings} == dict.fromkeys(spellings, form)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1,2", "12"),
        ("32, 349", "32,349"),
        ("1,2,3,...", "1,2,3"),
        ("9**9**9", "999"),
        ("2e-3", "0.002"),
        (r"5\text{ or more}", "5"),
        (r"3\text{ p.m.}", r"3\text{ a.m.}"),
        (r"10\% \text{ increase}", r"10\% \text{ decrease}"),
        (r"5 \pmod 7", "5"),
        ("5 of 8", "5"),
        ("2st", "2"),
        (r"\sqrt17", r"\sqrt{1}7"),
        ("x=1,y=2", "x=2,y=1"),
        (r"Y \in [0,1]", r"x \in [0,1]"),
        (r"\pm 5", "5"),
        ("A", "a"),
    ],
)
def test_canonical_keeps_apart(left, right):
    assert canonical(left) != canonical(right)


def test_a_long_answer_keeps_its_spelling():
    assert canonical("x " * 3000) == " ".join(["x"] * 3000)
    digits = "9" * 5000  # more than int() would convert
    assert canonical(digits) == digits
    assert canonical("0" + digits[:1500]) == digits[:1500]


@generated
@given(st.text(max_size=40) | latex_like)
def test_canonical_is_idempotent(text):
    assert canonical(canonical(text)) == canonical(text)


@pytest.mark.parametrize("answer", REAL)
def test_canonical_is_idempotent_on_reference_answers(answer):
    assert canonical(canonical(answer)) == canonical(answer) != ""


@generated
@given(st.sampled_from(REAL))
def test_layout_does_not_change_the_form(answer):
    for layout in (f"${answer}$", f"\\boxed{{{answer}}}", f" {answer} ", f"\\[ {answer} \\]", f"{answer}."):
        assert canonical(layout) == canonical(answer)


@generated
@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_a_rational_has_one_class(answers, numerator, denominator):
    sign = "-" if numerator < 0 else ""
    spellings = [f"{numerator}/{denominator}", f"{sign}\\frac{{{abs(numerator)}}}{{{denominator}}}"]
    spellings.append(f"\\frac{{{7 * numerator}}}{{{7 * denominator}}}")
    assert answers.classes(spellings) == [0, 0, 0]


@generated
@given(st.integers(-(10**15), 10**15))
def test_an_integer_has_one_form(value):
    spellings = [str(value), f"{value:,}", f"{value}.00", f"${value}$"]
    assert {canonical(spelling) for spelling in spellings} == {str(value)}
