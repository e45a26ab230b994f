"""The atoms of an expression."""

from tests.unprm.answers.support import apart


@apart(
    ["A", "B", "a", "AB"],
    ["(a+5)(b+2)", "(+5)(b+2)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
