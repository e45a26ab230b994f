"""The arithmetic that steps write out: what is found false, what holds, and what is not read."""

import json
import time

import pytest

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
]
TRUE = [
    "12 * 12 = 144",
    "1,000 * 2 = 2,000",
    "10 / 3 = 3.33, 2 / 3 = 0.66",
    "0.1 + 0.2 = 0.3",
    "0.2 * 100 = 20%",
    "\\[ = 28 \\div 4 \\cdot 3 = 21 \\]",
    "7 - 9 = −2",
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


@pytest.mark.parametrize(
    "piece", ["1+", "1=", "(", "1+1=", "\\frac{", "1 ab ", "1,000,", "\\text{", "^{", "1\\(", "a-"]
)
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    def seconds(characters: int) -> float:
        begun = time.process_time()
        list(equations((piece * characters)[:characters]))
        return time.process_time() - begun

    seconds(1000)
    short = max(seconds(30_000), 0.01)
    assert seconds(120_000) < 16 * short  # a square would take 16 times as long, and more
