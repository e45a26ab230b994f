"""The arithmetic that steps write out: what is found false, what holds, and what is not read."""

import gc
import json
import time
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import ROOT
from unprm.checks import check, equations

SOLUTIONS = ROOT / "tests/data/processbench"
FALSE = [
    "12 * 12 = 124",
    "So 12 x 12 = 124.",
    "Step 1: 4 * 15 = 50.",
    "x = 3 + 4 = 8",
    "\\(\\frac{1}{2} \\times 6 = 4\\)",
    "She has 3 × 4 = 13 apples.",
    "$5 * 3 = $16",
    "20% * 50 = 12",
    "2 * 2 = 4 + 1 = 5",
    "\\[ 2 \\text{ books} \\times 2 \\text{ pounds} = 5 \\text{ pounds} \\]",
    "10 / 3 = 3.5",
    "3^{2} + 1 = 11",
    "(-3) * 4 = 12",
]
TRUE = [
    "12 * 12 = 144",
    "1,000 * 2 = 2,000",
    "10 / 3 = 3.33, 2 / 3 = 0.66",
    "0.1 + 0.2 = 0.3",
    "0.2 * 100 = 20%",
    "\\[ = 28 \\div 4 \\cdot 3 = 21 \\]",
    "7 - 9 = −2",
    "3 * (−4) = -12",
    "2(3 + 4) = 14",
]
UNREAD = [
    "",
    "She has 5 apples.",
    "2x + 3 = 7",
    "3ab = 6",
    "4 hours = 4 * 60 minutes",
    "\\frac{1}{2} \\text{ inch} = 20 \\text{ miles}",
    "25% of 80 = 20",
    "9:50 + 30 = 10:20",
    "5! = 120",
    "14 / 1/4 = 56",
    "y_0 + 4 = 0",
    "Is 3 + 4 = 8?",
    "4\\frac{5}{8} * 2 = 9",
    "f(3) = 2(3) + x = 7",
]


@pytest.mark.parametrize(("score", "steps"), [(0.0, FALSE), (1.0, TRUE), (None, UNREAD)])
def test_a_step_is_scored_by_its_equations(score: float | None, steps: list[str]) -> None:
    assert {step: check(step) for step in steps} == dict.fromkeys(steps, score)


@pytest.mark.parametrize("name", ["gsm8k", "math"])
def test_steps_that_people_call_right_have_no_false_equation(name: str) -> None:
    rows = [json.loads(line) for line in (SOLUTIONS / f"{name}.jsonl").read_text("utf-8").splitlines()]
    right = [step for row in rows for step in row["steps"][: None if row["label"] < 0 else row["label"]]]
    scores = [check(step) for step in right]
    assert scores.count(1.0) > 0
    assert [step for step, score in zip(right, scores, strict=True) if score == 0.0] == []


PIECES = [
    "1+",
    "1=",
    "(",
    "1+1=",
    "\\frac{",
    "1 ab ",
    "1,000,",
    "\\text{",
    "^{",
    "1\\(",
    "a-",
    "2^",
    "1%*",
    "12.",
    " ",
    "1/1/",
]
"""Of texts on which a pattern could go back and forth."""


@pytest.mark.parametrize("piece", PIECES)
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    def seconds(characters: int) -> float:
        begun = time.process_time()
        list(islice(equations((piece * characters)[:characters]), 100))
        return time.process_time() - begun

    gc.disable()  # it looks at all pieces again and again
    try:
        seconds(1000)
        short = max(seconds(20_000), 0.01)
        assert seconds(160_000) < 24 * short  # of a square: 64
    finally:
        gc.enable()


def test_a_step_that_nobody_writes_is_not_read() -> None:
    begun = time.process_time()
    assert check("1+1=3 " * 10**6) is None
    assert time.process_time() - begun < 0.1


@given(
    st.text("0123456789+-*/=().,%^$x \n") | st.lists(st.sampled_from([*PIECES, "=", "3", ") ", "} = 4"])).map("".join)
)
def test_any_text_is_scored(text: str) -> None:
    assert check(text) in (None, 0.0, 1.0)


@given(
    st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 99)), min_size=1, max_size=4),
    st.integers(1, 99),
    st.data(),
)
def test_calculations_hold_with_their_value_and_no_other(
    parts: list[tuple[str, int]], first: int, data: st.DataObject
) -> None:
    assume("//" not in "".join(operator for operator, _ in parts))  # 14 / 1 / 4 may mean 14 / (1 / 4)
    exact = f"Fraction({first})" + "".join(f"{operator}Fraction({number})" for operator, number in parts)
    value: Fraction = eval(exact)
    signs = {"+": " + ", "-": " - ", "*": data.draw(st.sampled_from([" * ", " × ", " \\times "])), "/": " ÷ "}
    text = str(first) + "".join(signs[operator] + str(number) for operator, number in parts)
    shown = str(value) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    wrong = value + data.draw(st.sampled_from([-7, -1, 1, 10]))
    off = str(wrong) if wrong.denominator == 1 else f"\\frac{{{wrong.numerator}}}{{{wrong.denominator}}}"
    assert (check(f"So {text} = {shown}."), check(f"So {text} = {off}.")) == (1.0, 0.0)
