"""Rewrites that do not change what is meant."""

from tests.unprm.answers.support import apart, same


@same(
    [r"\binom84", r"\dbinom{8}4", "70"],
    [r"\frac{\pi}{4}+k\pi, k \in \mathbb{Z}", r"\frac{\pi}{4}+k\pi"],
    ["all real numbers", r"\mathbb{R}", r"\text{All real numbers}"],
    [r"x\not=1", r"x\neq 1", r"x \ne 1"],
    ["42\\", "42"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"1\sqrt{19}", "1", "19"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
