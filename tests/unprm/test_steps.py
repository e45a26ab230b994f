"""From text to steps and back, and what a solution's step scores say of it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import TEST_DATA
from unprm import steps

SOLUTIONS = TEST_DATA / "solutions" / "statements.jsonl"
BLOCKS = re.compile(r"```|~~~|\\[\[\]]|\$\$|\\begin|^\s*(-{3,}|\*{3,}|_{3,})\s*$", re.MULTILINE)
TEXTS = [json.loads(line)["text"] for line in SOLUTIONS.read_text("utf-8").splitlines()]
PLAIN = [text for text in TEXTS if not BLOCKS.search(text)]


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So\n\n```python\nx = 1\n\ny = 2\n```\n\nDone.", ["So", "```python\nx = 1\n\ny = 2\n```", "Done."]),
        ("~~~\na\n\n```\n\nb\n~~~\n\nc", ["~~~\na\n\n```\n\nb\n~~~", "c"]),
        ("We get\n\\[\nx = 5\n\\]\nthus", ["We get", "\\[\nx = 5\n\\]", "thus"]),
        ("a\n\n\\[\nx\n\ny\n\\]\n\nb", ["a", "\\[\nx\n\ny\n\\]", "b"]),
        ("a\n\n$$\nx\n\ny\n$$\n\nb", ["a", "$$\nx\n\ny\n$$", "b"]),
        ("so $$x\n= y$$\nthus", ["so $$x\n= y$$", "thus"]),
        ("\\begin{align*}\na\n\nb\n\\end{align*}\n\nc", ["\\begin{align*}\na\n\nb\n\\end{align*}", "c"]),
        ("f = \\begin{cases}\n1\n2\n\\end{cases}\nthen", ["f = \\begin{cases}\n1\n2\n\\end{cases}", "then"]),
        ("\\begin{a}\n\\begin{a}\n1\n\\end{a}\n\\end{a}\n2", ["\\begin{a}\n\\begin{a}\n1\n\\end{a}\n\\end{a}", "2"]),
        ("Step 1: a\n$$\nStep 2\n$$\nStep 3: b", ["Step 1: a\n$$\nStep 2\n$$", "Step 3: b"]),
        ("\\begin{proof}\nFirst.\n\nSecond.\n\\end{proof}", ["\\begin{proof}\nFirst.", "Second.\n\\end{proof}"]),
        ("First.\n\n---\n\nSecond.\n\n***\n\nThird.", ["First.", "Second.", "Third."]),
        ("One\nstep.\n\n---", ["One\nstep."]),
        ("---", []),
    ],
)
def test_blocks_stay_whole_and_rules_are_no_steps(text, expected):
    assert steps.split(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```\nFirst.\n\nSecond.\n\nThird.", ["```\nFirst.", "Second.", "Third."]),
        ("```\nFirst.\n\n```python\n1\n\n2\n```\n\nThird.", ["```\nFirst.", "```python\n1\n\n2\n```", "Third."]),
        ("\\[ First.\n\nSecond.\n\nThird.", ["\\[ First.", "Second.", "Third."]),
        ("\\[ First.\n\nSecond.\n\n\\[\nx\n\ny\n\\]", ["\\[ First.", "Second.", "\\[\nx\n\ny\n\\]"]),
        ("\\[\n\nFirst.\n\nSecond.", ["First.", "Second."]),
        ("a $$ First.\n\nSecond.\n\n$$x$$\n\nThird.", ["a $$ First.", "Second.", "$$x$$", "Third."]),
        ("\\begin{align}\nFirst.\n\nSecond.", ["\\begin{align}\nFirst.", "Second."]),
        ("\\end{align}\nFirst.\n\nSecond.", ["\\end{align}\nFirst.", "Second."]),
        ("costs \\\\[2pt] First.\n\nSecond \\]", ["costs \\\\[2pt] First.", "Second \\]"]),
    ],
)
def test_what_is_not_closed_swallows_nothing(text, expected):
    assert steps.split(text) == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("auto", ["a\nStep 1: b", "c\nStep 2: d"]),
        ("paragraph", ["a\nStep 1: b", "c\nStep 2: d"]),
        ("step", ["a", "Step 1: b\n\nc", "Step 2: d"]),
        ("line", ["a", "Step 1: b", "c", "Step 2: d"]),
    ],
)
def test_modes(mode, expected):
    assert steps.split("a\nStep 1: b\n\nc\nStep 2: d", mode) == expected
    assert steps.split("one", mode) == ["one"]
    assert steps.split(" \n", mode) == []


def _plain_split(text):
    """The rule for texts without blocks and rules, by other means."""
    paragraphs = [piece.strip() for piece in re.split(r"\n\s*\n", text) if piece.strip()]
    if len(paragraphs) > 1:
        return paragraphs
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    joined: list[str] = []
    for line in lines:
        if joined and any(map(_is_step_line, lines)) and not _is_step_line(line):
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    return joined


def _is_step_line(line):
    return re.match(r"[#*]{0,4}\s*step\s*\d", line, re.IGNORECASE) is not None


@pytest.mark.parametrize("text", PLAIN)
def test_texts_without_blocks_are_split_as_ever(text):
    assert [step.split() for step in steps.split(text)] == [step.split() for step in _plain_split(text)]


@pytest.mark.parametrize(
    "unit",
    ["```\n", "~~~\n", "\\[\n", "\\]", "$$\n", "$$", "\\begin{a}\n", "\\end{a}", "\n ", " ", "---\n\n", "Step 1\n"],
)
def test_a_long_text_is_split_at_once(unit):
    """Quadratic work would take hours on it; the time-out of the test run is the bound."""
    text = unit * (200_000 // len(unit))
    for mode in ("auto", "step", "line"):
        steps.split(text, mode)


@given(st.text().filter(lambda text: not re.search(r"-{3}|\*{3}|_{3}|\\[\[\]]", text)))  # a rule is no step
def test_split_loses_nothing_but_space_and_leaves_no_blank_step(text):
    found = steps.split(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(step == step.strip() and step for step in found)


@given(st.lists(st.text("ab c1.=\\", min_size=1).filter(lambda s: s.strip() == s), min_size=2))
def test_join_is_undone_by_split(parts):
    assert steps.split(steps.join(parts)) == parts


delimited = st.lists(
    st.sampled_from(["a", "b c", "\n", "\n\n", "$$", "```", "```\n", "\\[", "\\]", "---", "\\begin{x}", "\\end{x}"])
)


@given(delimited.map("".join))
def test_steps_of_a_text_are_split_from_each_other_again(text):
    found = steps.split(text)
    assert len(found) < 2 or steps.split(steps.join(found)) == found


@pytest.mark.parametrize("mode", ["auto", "paragraph", "step", "line"])
@given(text=delimited.map("".join), most=st.integers(1, 4))
def test_what_is_beyond_the_most_steps_stays_together(text, mode, most):
    every, few = steps.split(text, mode), steps.split(text, mode, most)
    assert few[:most] == every[:most]
    assert len(few) == min(len(every), most + 1)
    assert all(each in few[most] for each in every[most:])


def test_rewards():
    scores = [0.5, 0.2, 0.8]
    rewards = {kind: steps.reward(scores, kind) for kind in ("min", "last", "product", "mean")}
    assert rewards == pytest.approx({"min": 0.2, "last": 0.8, "product": 0.08, "mean": 0.5})


def test_first_error_is_the_first_step_strictly_below_the_threshold():
    assert steps.first_error([0.9, 0.5, 0.4, 0.1]) == 2
    assert steps.first_error([0.9, 0.5]) is None
    assert steps.first_error([0.9, 0.5], threshold=0.95) == 0


@pytest.mark.parametrize(
    ("text", "pieces", "ends"),
    [
        ("Step 1: a\nStep 2: b", ["Step 1: a", "\n", "Step 2: b"], [2, 3]),
        ("Step 1: a\n\nStep 2: b", ["Step 1:", " a\n\n", "Step 2: b", ""], [2, 3]),  # the last is the end-of-text token
        # a token that reaches into the next step belongs to it
        ("Step 1: a\n\nStep 2: b", ["Step 1: a", "\n\nStep", " 2: b"], [1, 3]),
        ("Step 1: ş\nStep 2: b", ["Step 1: ş", "\nStep 2: b"], [1, 2]),
        ("one", ["o", "ne"], [2]),
        (" ", [" ", ""], []),
    ],
)
def test_where_steps_end_in_tokens(text, pieces, ends):
    assert steps.token_ends(text, range(len(pieces)), lambda ids: "".join(pieces[i] for i in ids)) == ends
