"""Rationals, balls, and the keys of numbers."""

from fractions import Fraction

import pytest
from flint import acb, arb, fmpq
from hypothesis import given
from hypothesis import strategies as st

from tests.unprm.answers.support import generated
from unprm.answers.mathtext.evaluation import (
    Undecided,
    Undefined,
    added,
    argument,
    inverted,
    number_key,
    settled,
)


def root(number):
    return acb(number).sqrt()


@generated
@given(st.fractions(max_denominator=10**9))
def test_a_rational_has_one_key_exact_or_in_a_ball(value):
    assert number_key(settled(acb(fmpq(value.numerator, value.denominator)))) == number_key(value) == str(value)


def test_a_ball_that_holds_an_integer_is_that_integer():
    assert settled(root(2) * root(2)) == 2
    assert settled(acb(0, 1) ** 2) == -1
    assert isinstance(settled(acb(arb(1, 1e-20))), acb)  # too wide to say


def test_equal_balls_have_one_key_and_others_do_not():
    assert number_key(root(2) * root(3)) == number_key(root(6))
    assert number_key(root(2)) != number_key(root(2) + acb(10) ** -80)
    assert number_key(acb(1, 2) * root(2)) == "|".join([number_key(root(2)), number_key(root(8)) + "i"])


def test_what_cancels_is_0_and_what_would_vanish_is_not_decided():
    assert added([root(8), -2 * root(2)]) == 0
    with pytest.raises(Undecided):
        added([root(2), acb(10) ** -90])
    with pytest.raises(Undecided):
        added([acb(arb(1, 1e-20)), acb(-1)])


def test_a_ball_that_is_too_wide_has_no_key():
    with pytest.raises(Undecided):
        number_key(acb(arb(2, 1e-20)))
    with pytest.raises(Undecided):
        number_key(acb.pi() * acb(2) ** 300_000)


def test_one_over_a_value():
    assert inverted(Fraction(2, 3)) == Fraction(3, 2)
    with pytest.raises(Undefined):
        inverted(Fraction(0))
    with pytest.raises(Undecided):
        inverted(acb(arb(0, 1e-20)))


@pytest.mark.parametrize("value", [acb(10) ** 41, acb(10) ** -41])
def test_arguments_of_functions_are_of_middle_size(value):
    with pytest.raises(Undecided):
        argument(value)
    assert argument(Fraction(0)) == 0
