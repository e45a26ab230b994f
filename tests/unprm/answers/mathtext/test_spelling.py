"""Rewrites that do not change what is meant."""

from tests.unprm.answers.support import apart, same


@same(
    [r"\binom84", r"\dbinom{8}4", "70"],
    [r"\frac{\pi}{4}+k\pi, k \in \mathbb{Z}", r"\frac{\pi}{4}+k\pi"],
    ["all real numbers", r"\mathbb{R}", r"\text{All real numbers}"],
    [r"x\not=1", r"x\neq 1", r"x \ne 1"],
    ["42\\", "42"],
    [r"\frac{x^2}{2}+C", r"\frac12x^2+c", r"x^2/2+K"],
    [r"f(x)=x+c \text{ for any constant } c", "f(x)=x+c"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"1\sqrt{19}", "1", "19"],
    ["x^2+C", "x^2", "x^2+Cx", "x^2+k"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
