"""The atoms of an expression."""

import pytest

from tests.unprm.answers.support import apart
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Unreadable


@apart(
    ["A", "B", "a", "AB"],
    ["(a+5)(b+2)", "(+5)(b+2)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))


@pytest.mark.parametrize("text", ["(" * 50 + "1" + ")" * 50, "9" * 1001, "(1", "|x", "?", ""])
def test_unreadable(text):
    with pytest.raises(Unreadable):
        parse(text)
