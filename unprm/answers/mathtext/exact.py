"""Numbers as exact sums: rationals times square roots times powers of pi and i.

Most numeric answers are of this form; their sums, products and keys are exact and take microseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, isqrt

MAX_RADICAND = 10**9  # square-free parts are found by trial division up to its cube root
MAX_PI_POWER = 8


class NotExact(Exception):
    """The value isn't of this form, or can't be shown to be of it."""


class Undefined(Exception):
    """The expression has no value: a division by zero, or no real value where it has unknowns."""


class TooBig(Exception):
    """The value exceeds the limits of what is computed."""


# What a term's coefficient is multiplied with: (square-free radicand, power of pi, power of i in 0..1)
Basis = tuple[int, int, int]
_ONE: Basis = (1, 0, 0)


@dataclass(frozen=True, slots=True)
class Exact:
    """``sum(coefficient * sqrt(n) * pi**k * i**j)``; no term is zero, so the value is zero only if it has
    none."""

    terms: dict[Basis, Fraction]

    def rational(self) -> Fraction:
        """The value as a rational. Raises `NotExact`."""
        if not self.terms:
            return Fraction(0)
        if len(self.terms) > 1 or _ONE not in self.terms:
            raise NotExact
        return self.terms[_ONE]

    def integer(self) -> int:
        """The value as an integer. Raises `NotExact`."""
        value = self.rational()
        if value.denominator != 1:
            raise NotExact
        return value.numerator


def exact(value: Fraction) -> Exact:
    """A rational as an `Exact`."""
    return Exact({_ONE: value} if value else {})


PI = Exact({(1, 1, 0): Fraction(1)})
IMAGINARY_UNIT = Exact({(1, 0, 1): Fraction(1)})


def negated(value: Exact) -> Exact:
    """Minus the value."""
    return Exact({basis: -coefficient for basis, coefficient in value.terms.items()})


def added(values: Iterable[Exact]) -> Exact:
    """The sum of values."""
    terms: dict[Basis, Fraction] = {}
    for value in values:
        for basis, coefficient in value.terms.items():
            terms[basis] = terms.get(basis, Fraction(0)) + coefficient
    return Exact({basis: coefficient for basis, coefficient in terms.items() if coefficient})


def multiplied(left: Exact, right: Exact) -> Exact:
    """The product of two values."""
    terms: dict[Basis, Fraction] = {}
    for (n, k, j), a in left.terms.items():
        for (m, q, r), b in right.terms.items():
            common = gcd(n, m)
            inside = (n // common) * (m // common)
            coefficient = a * b * common
            basis = (inside, k + q, (j + r) % 2)
            terms[basis] = terms.get(basis, Fraction(0)) + (-coefficient if j + r == 2 else coefficient)
    if any(abs(basis[1]) > MAX_PI_POWER for basis in terms):
        raise NotExact
    return Exact({basis: coefficient for basis, coefficient in terms.items() if coefficient})


def inverted(value: Exact) -> Exact:
    """One over the value."""
    if not value.terms:
        raise Undefined
    if len(value.terms) == 1:
        (((n, k, j), coefficient),) = value.terms.items()
        return Exact({(n, -k, j): (1 if j == 0 else -1) / (coefficient * n)})
    return _inverted_sum(value)


def _inverted_sum(value: Exact) -> Exact:
    """One over a sum, by making its denominator rational: multiplies by the conjugate for one square root, or i,
    at a time."""
    if len(value.terms) > 4 or any(k for _, k, _ in value.terms):
        raise NotExact
    (n, _, j) = max(value.terms)
    conjugate = Exact({b: -c if _holds(b, n, j) else c for b, c in value.terms.items()})
    norm = multiplied(value, conjugate)
    if len(norm.terms) >= len(value.terms):
        raise NotExact
    return multiplied(conjugate, inverted(norm))


def _holds(basis: Basis, radicand: int, imaginary: int) -> bool:
    """Whether the conjugation that negates the last basis element negates this one as well."""
    return basis[0] == radicand if radicand > 1 else basis[2] == imaginary == 1


def rooted(value: Fraction, degree: int) -> Exact:
    """The principal root of a rational: rational itself, or a square root. Raises `NotExact`."""
    size = abs(value)
    over, under = _integer_root(size.numerator, degree), _integer_root(size.denominator, degree)
    if over is not None and under is not None:
        root = exact(Fraction(over, under))
    elif degree == 2:
        inside, outside = _square_free(size.numerator * size.denominator)
        root = Exact({(inside, 0, 0): Fraction(outside, size.denominator)})
    else:
        raise NotExact
    if value >= 0:
        return root
    if degree > 2:
        raise NotExact
    return multiplied(root, IMAGINARY_UNIT)


def _integer_root(value: int, degree: int) -> int | None:
    """The exact root of a non-negative integer, or None."""
    if degree == 2:
        root = isqrt(value)
    elif value < 2:
        return value
    elif degree > value.bit_length():
        return None
    else:
        root = _newton_root(value, degree)
    return root if root**degree == value else None


def _newton_root(value: int, degree: int) -> int:
    root = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if better >= root:
            return root
        root = better


def _square_free(value: int) -> tuple[int, int]:
    """(inside, outside) with value = inside * outside**2 and inside square-free."""
    root = isqrt(value)
    if root * root == value:
        return 1, root
    if value > MAX_RADICAND:
        raise NotExact
    inside, outside, divisor = 1, 1, 2
    while divisor**3 <= value:
        power = 0
        while value % divisor == 0:
            value //= divisor
            power += 1
        inside *= divisor ** (power % 2)
        outside *= divisor ** (power // 2)
        divisor += 1 if divisor == 2 else 2
    # What is left has at most two prime factors, so it is a square or square-free.
    root = isqrt(value)
    return (inside, outside * root) if root * root == value else (inside * value, outside)
