"""What is not read as mathematics."""

import pytest

from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Unreadable


@pytest.mark.parametrize("text", ["(" * 50 + "1" + ")" * 50, "9" * 1001, "(1", "|x", "?", ""])
def test_unreadable(text):
    with pytest.raises(Unreadable):
        parse(text)
