"""What surrounds the mathematics."""

import pytest

from unprm.answers.mathtext.prose import boxes, unwrap


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"\boxed{1} or \fbox{{2}}", ["1", "{2}"]),
        (r"\boxed{a\boxed{b}}", [r"a\boxed{b}", "b"]),
        (r"\boxed 5 and \boxed\frac{1}{2}", ["5", r"\frac{1}{2}"]),
        (r"\boxed{1", []),
    ],
)
def test_boxes(text, inner):
    assert [text[box.inner] for box in boxes(text)] == inner


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 5.", "5"),
        ("the area is $5$ cm", "5"),
        ("$5$ or $6$", "5 or 6"),
        ("not $5$", "not 5"),
        ("$5", r"\$5"),
        (r"\boxed{1}, \boxed{2}", "1, 2"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        ("**7**", "7"),
        ("Option (B)", "(B)"),
    ],
)
def test_unwrap(text, answer):
    assert unwrap(text) == answer
