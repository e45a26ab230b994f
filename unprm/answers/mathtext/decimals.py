"""Long decimals that are the rounding of a simple number.

Agreement to some digits is not an equivalence relation, so each long decimal is replaced, independently, by the
one simple number it rounds: 0.3333333333 by 1/3, 9.42477796 by 3 pi, 4.123105625617661 by the root of 17.
With d digits the simple number's numerator times denominator may be at most 10**(d - 5), so that a random
decimal is taken for one with a probability of about 1 in 10**5.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt, ulp

from unprm.answers.mathtext.tokens import LONG_DECIMAL
from unprm.answers.mathtext.tree import Call, Node, Number, Symbol

_SPARE = 5
_SHORT, _NOISE = 10, 4  # digits of a sum of short decimals, and its allowed error in units of the last place
_MAX_DIGITS = 40
_PI = Fraction("3.141592653589793238462643383279502884197169399375105820974945")


def identified(node: Node) -> Node:
    """The simple rational, multiple of pi or square root that a long decimal rounds, also after a sign; any other
    node unchanged."""
    match node:
        case Number():
            return _identified(node)
        case Call("neg", (Number() as decimal,)):
            return Call("neg", (_identified(decimal),))
    return node


def _identified(decimal: Number) -> Node:
    if short := _without_noise(decimal):
        return short
    if not LONG_DECIMAL <= decimal.digits <= _MAX_DIGITS or decimal.value <= 0:
        return decimal
    height = 10 ** (decimal.digits - _SPARE)
    low, high = _window(decimal)
    for node, value in _candidates(low, high):
        if value.numerator * value.denominator <= height:
            return node
    return decimal


def _without_noise(decimal: Number) -> Number | None:
    """The short decimal that a double of 16 or 17 digits equals up to a few units in its last place: 0.3 for
    0.30000000000000004."""
    if decimal.digits not in (16, 17):
        return None
    double = float(decimal.value)
    short = Fraction(f"{double:.{_SHORT}g}")
    near = abs(decimal.value - short) <= _NOISE * Fraction(ulp(double))
    return Number(short) if near and Fraction(repr(double)) == decimal.value else None


def _window(decimal: Number) -> tuple[Fraction, Fraction]:
    """The range of numbers that round, or are truncated, to the decimal: from half a unit of its last place below
    to one unit above; with 16 or 17 digits, half a unit and one unit of a double."""
    unit = Fraction(1, 10 ** _places(decimal))
    if decimal.digits in (16, 17):
        unit = max(unit, decimal.value / 2**52)
    return decimal.value - unit / 2, decimal.value + unit


def _places(decimal: Number) -> int:
    """The number of decimal places: the significant digits that are not in the whole part."""
    places, value = 0, decimal.value
    while value >= 1:
        value /= 10
        places -= 1
    while value < Fraction(1, 10):
        value *= 10
        places += 1
    return places + decimal.digits


def _candidates(low: Fraction, high: Fraction) -> Iterator[tuple[Node, Fraction]]:
    """Numbers without a finite decimal: rationals, multiples of pi, irrational roots."""
    rational = _simplest(low, high)
    if 10**_MAX_DIGITS % rational.denominator:
        yield Number(rational), rational
    multiple = _simplest(low / _PI, high / _PI)
    yield Call("*", (Number(multiple), Symbol("\\pi"))), multiple
    square = _simplest(low * low, high * high)
    if isqrt(square.numerator * square.denominator) ** 2 != square.numerator * square.denominator:
        yield Call("root", (Number(square), Number(Fraction(2)))), square


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The rational of the smallest denominator in the open interval between two positive numbers."""
    whole = low.numerator // low.denominator
    if whole + 1 < high:
        return Fraction(whole + 1)
    rest_low, rest_high = low - whole, high - whole
    if rest_low == 0:
        return whole + Fraction(1, int(1 / rest_high) + 1)
    return whole + 1 / _simplest(1 / rest_high, 1 / rest_low)
