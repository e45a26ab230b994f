"""The name of the unknown before a value."""

from tests.unprm.answers.support import apart, same


@same(
    ["x = 5", "5", "5 = x", "2x=10", "f(x)=5", "|AB| = 5", r"\text{area} = 5", "y=5"],
    ["(p,q)=(3,2)", "(3,2)", "p=3, q=2"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"Y \in [0,1]", r"x \in [0,1]"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
