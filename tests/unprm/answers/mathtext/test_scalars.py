"""Keys of expressions with unknowns."""

from tests.unprm.answers.support import apart, same


@same(
    ["x(x+1)", "x^2+x", "x*(1+x)", r"\frac{x^3+x^2}{x}"],
    [r"\sin^2 x+\cos^2 x", "1"],
    [r"\tan^2(y)+1", r"\sec^2(y)"],
    [r"\cos(x)", r"\sin(90^{\circ}-x)", r"\sin(\frac{\pi}{2}-x)"],
    [r"2^{x+1}", r"2\cdot 2^x"],
    [r"4/3-7x/6", r"\frac{8-7x}{6}"],
    [
        r"\frac{v_0 (\frac{r_0}{r + r_0})^{0.5}}{r + r_0}",
        r"\frac{v_{0}}{r_{0}} \frac{1}{\left(1+r / r_{0}\right)^{3 / 2}}",
    ],
    [
        r"-\frac{2(x^2+6)}{9(x^2-2)\sqrt[3]{x^2-2}^2}",
        r"-\frac{8x^2}{9(x^2-2)^{5/3}}+\frac{2}{3(x^2-2)^{2/3}}",
    ],
    [r"\sum_{k=0}^{n-1} F_k F_{n-k-1}", r"\sum_{k=0}^{n-1} F_{n-k-1} F_k"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["x^{100}+1", "x^{100}", "x^{101}"],
    ["(-1)^n", "1", "-1"],
    ["x+1", "y+1", "x-1", "x"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
