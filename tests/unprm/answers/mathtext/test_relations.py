"""Equations and inequalities."""

from tests.unprm.answers.support import apart, same


@same(
    ["z = 1+1 = 2", "2"],
    [r"x = \frac{2\pm\sqrt{8}}{2} = 1\pm\sqrt{2}", r"1\pm\sqrt2"],
    ["y = 2x+1", "2x+1", "2x-y+1=0", "f(x) = 2x+1", "4x-2y=-2"],
    ["x^2/4 + y^2/3 = 1", "x^2/16 + y^2/12 = 1/4"],
    ["x > 2", r"(2,\infty)", "2 < x", "-2x+4 < 0", r"x\in(2,\infty)", r"(2,+\infty)"],
    [r"1 < 2x+1 \leq 5", "(0,2]", "2 >= x > 0", "0<f(x)<=2"],
    ["x+y<5", "5>x+y", "-x-y>-5", "2x+2y<10"],
    ["2+3=5", "5", "5 = 5", "10/2 = 2+3 = 5", "8-3 = 5", "(8)-(3)", "(8-3)"],
    ["3*5 = 15 cm", "15 cm", "15"],
    ["|x|<1", "(-1,1)"],
    ["|x-3|>2", r"(-\infty,1)\cup(5,\infty)"],
    [r"|2x-1|\le 3", "[-1,2]"],
    ["x^2=4", r"x=\pm2", "-2, 2", "x^2-4=0"],
    ["x^2-5x+6=0", "2,3"],
    ["x^2=2", r"\pm\sqrt2"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["10*6 = 6", "22/2 = 12", "z = 3+3 = 2", "2"],
    ["a+b=c", "x+1=2y+3z", "x^2=4", "a=b^2c"],
    ["x>2", r"x\ge2", "x<2", "x=2", r"x\ne2"],
    ["7 = 11a+c", "11a+c", "7"],
    ["a+3z = 0", "0", "a^2+b=0"],
    [r"\cos(x)=\frac{42}{59}", r"\sin(x)=\frac{42}{59}"],
    ["x^2=4", "x^2=-4", "2"],
    ["2+3=6", "5", "6"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
