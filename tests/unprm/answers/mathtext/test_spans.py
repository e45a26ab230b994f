"""Sets of real numbers."""

from tests.unprm.answers.support import apart, same


@same(
    [r"x \neq 0", r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}", "x<0 \\text{ or } x>0"],
    [r"\mathbb{R}", r"(-\infty,\infty)"],
    [r"[1,2]\cup[2,3]", "[1,3]"],
    [r"x<1\text{ or }x<3", "x<3"],
    ["3<x<5", "(3,5)", "x>3, x<5", "3 < x and x < 5", r"x<5 \text{ and } x>3"],
    [r"\{x \mid x \neq 2\}", r"x \neq 2", r"\{x \in \mathbb{R} : x \ne 2\}", r"\mathbb{R}\setminus\{2\}"],
    [r"\left\{x \mid -1 < x \le 1\right\}", "(-1,1]"],
    [r"\mathbb{R}\setminus[-2,3]", r"(-\infty,-2)\cup(3,\infty)"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"(0,1)\cup(1,2)", "(0,2)"],
    ["x>3, x<5", "x>3, y<5", "x<3, x>5", "(3,5]"],
    [r"\{x \mid x>3\}", r"\{x \mid x\ge3\}", r"\{3\}"],
    [r"\emptyset", r"\{\emptyset\}", r"\{0\}"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
