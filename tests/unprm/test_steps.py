"""From text to steps and back, and what a solution's step scores say of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm import steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("First.\n\nSecond\nline.\n\n\nThird.", ["First.", "Second\nline.", "Third."]),
        ("First.\r\n\r\nSecond.", ["First.", "Second."]),
        ("Step 1: a\nmore of a\nStep 2: b", ["Step 1: a\nmore of a", "Step 2: b"]),
        ("Let's go.\nStep 1: a\nStep 2: b", ["Let's go.", "Step 1: a", "Step 2: b"]),
        ("**Step 1** a\n### Step 2: b\nstep 3 c", ["**Step 1** a", "### Step 2: b", "step 3 c"]),
        ("one\ntwo\n  three ", ["one", "two", "three"]),
        ("Step 1: a\nand its second line", ["Step 1: a\nand its second line"]),
        ("a step by step walk\nStepping 2 on", ["a step by step walk", "Stepping 2 on"]),
        ("only one", ["only one"]),
        (" \n\t\n", []),
    ],
)
def test_split(text, expected):
    assert steps.split(text) == expected


@given(st.text())
def test_split_loses_nothing_but_space_and_leaves_no_blank_step(text):
    found = steps.split(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(step == step.strip() and step for step in found)


@given(st.lists(st.text("ab c1.=\\", min_size=1).filter(lambda s: s.strip() == s), min_size=2))
def test_join_is_undone_by_split(parts):
    assert steps.split(steps.join(parts)) == parts


def test_rewards():
    scores = [0.5, 0.2, 0.8]
    rewards = {kind: steps.reward(scores, kind) for kind in ("min", "last", "product", "mean")}
    assert rewards == pytest.approx({"min": 0.2, "last": 0.8, "product": 0.08, "mean": 0.5})


def test_first_error_is_the_first_step_strictly_below_the_threshold():
    assert steps.first_error([0.9, 0.5, 0.4, 0.1]) == 2
    assert steps.first_error([0.9, 0.5]) is None
    assert steps.first_error([0.9, 0.5], threshold=0.95) == 0
