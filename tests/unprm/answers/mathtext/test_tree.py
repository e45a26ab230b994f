"""What is asked of a parsed answer."""

from fractions import Fraction

from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Number, has_words, structure, substituted, symbols

FIVE = Number(Fraction(5))


def test_symbols_are_unknowns_without_constants():
    assert symbols(parse(r"a_3+e\pi i x")) == {"a_3", "x"}
    assert structure(substituted(parse("2x+y"), {"x": FIVE})) == structure(parse("2*5+y"))


def test_the_structure_has_no_order_where_the_operation_has_none():
    assert structure(parse("a b+c")) == structure(parse("c+b a"))
    assert structure(parse("a-b")) != structure(parse("b-a"))
    assert structure(parse("(1,2]")) != structure(parse("(1,2)"))


def test_words():
    assert has_words(parse(r"x+\text{apples}"))
    assert not has_words(parse("x+y"))
