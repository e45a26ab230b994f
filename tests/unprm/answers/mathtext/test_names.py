"""The name of the unknown before a value."""

from tests.unprm.answers.support import apart, same


@same(
    ["x = 5", "5", "5 = x", "2x=10"],
    ["f(x)=5", "5"],
    ["|AB| = 5", "5"],
    [r"\text{area} = 5 \text{ cm}", "5 cm", "5"],
    ["answer = 5", "5", "y=5"],
    ["(p,q)=(3,2)", "(3,2)", "p=3, q=2"],
    [r"x \in [0,1]", "[0,1]"],
    ["|x|=5", r"x=\pm5", r"x=5 \text{ or } x=-5"],
    ["|x-1|=5", "6, -4"],
    [r"x \equiv 3 \pmod 7", r"3 \pmod{7}", "3 (mod 7)", "3 mod 7", "3"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"Y \in [0,1]", r"x \in [0,1]", r"y \in [0,1]"],
    ["x=3", "y=3", "3"],
    ["P(A)=1/2", "P(B)=1/2"],
    ["f'(x)=5", "f(x)=5", "f(1)=5"],
    ["max = 5", "min = 5", "mean = 5", "median = 5"],
    ["(x,y)=(1,2)", "(y,x)=(1,2)"],
    ["|x|=5", "x=5", "x=-5"],
    ["3 mod 7", "3 mod 8", "4 mod 7"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
