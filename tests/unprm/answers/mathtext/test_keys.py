"""Lists, tuples, sets and their order."""

from tests.unprm.answers.support import apart, same


@same(
    [
        "-2, 1", r"\{1,-2\}", "x=1 \\text{ or } x=-2", "1 and -2", r"\boxed{1}\text{ and }\boxed{-2}",
        r"x=1, x=-2",
    ],
    [r"3\pm2\sqrt2", r"3-2\sqrt2, 3+2\sqrt2"],
    ["(1,2),(3,4)", "(3,4), (1,2)", "(1,2),(3,4),(1,2)"],
    ["(0;0),(1;2)", "(0,0),(1,2)"],
    [r"\{1\}\cup\{2,3\}", r"\{3,2,1\}"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"1,2,\ldots,n", r"1,3,5,\ldots,2n-1", "1,2,n", r"1,2,\ldots"],
    ["19, 46, and 82", "21, 36, and 82"],
    [r"\pm 2021", "2021", "-2021"],
    ["(0,1)", "[0,1]", "(0,1]", "[0,1)", "-[0,1)", r"\{0,1\}", "1"],
    ["(1,2)", "(2,1)", "1,2", r"\{1,2\}"[:-1] + r"\}\cup\{3\}", "12"],
    ["x=1,y=2", "x=2,y=1"],
    ["1,1,2", "1,2"],
    ["A,B", "B,A"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
