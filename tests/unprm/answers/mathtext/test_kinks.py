"""Expressions with kinks."""

from tests.unprm.answers.support import apart, same


@same(
    ["|x-40|", "|40-x|", r"\sqrt{(x-40)^2}", r"\max(x-40,40-x)", r"\sqrt{x^2-80x+1600}"],
    ["2|x-5|", "|2x-10|", "|10-2x|"],
    [r"\sqrt{x^2-2xy+y^2}", "|x-y|"],
    [r"\max(a,b)", r"\max(b,a)", r"\frac{a+b+|a-b|}{2}"],
    [r"\sqrt{4x^2+4}", r"2\sqrt{x^2+1}"],
    [r"x\sqrt{x}", "x^{3/2}"],
    ["|x|^2", "x^2", r"\sqrt{x^4}"],
    ["|xy|", "|x||y|"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"\sqrt{x^2}", "x", "-x"],
    ["|x-40|", "40-x"],
    [r"\max(x,100)", "100"],
    [r"\sqrt{(x-50)^2}", "50-x", r"((x-50)^2)^{3/2}"],
    [r"\sqrt{x^2-100x+2500}", "50-x"],
    [r"\sqrt{(x-50)^2(x^2+1)}", r"(50-x)\sqrt{x^2+1}"],
    [r"2\max(x-5000,0)", r"\max(x-5000,0)", "0"],
    ["|x-40|e^x", "(40-x)e^x"],
    [r"\lfloor x/100000\rfloor", r"2\lfloor x/100000\rfloor", "0"],
    [r"\ln((x-50)^2)", r"2\ln(50-x)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
