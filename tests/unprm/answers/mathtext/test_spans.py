"""Sets of real numbers."""

from tests.unprm.answers.support import apart, same


@same(
    [r"x \neq 0", r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}", "x<0 \\text{ or } x>0"],
    [r"\mathbb{R}", r"(-\infty,\infty)"],
    [r"[1,2]\cup[2,3]", "[1,3]"],
    [r"x<1\text{ or }x<3", "x<3"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"(0,1)\cup(1,2)", "(0,2)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
