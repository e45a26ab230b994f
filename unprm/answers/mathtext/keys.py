"""Keys of numbers: short strings that are the same for the same number, however it was computed.

A rational has an exact key. The key of an irrational real is the first `DIGITS` digits of its product with an odd
constant: the product keeps numbers that people write (halves of a unit in the last place, for example) away from
the edges of rounding.
"""

import hashlib
from fractions import Fraction
from functools import cache
from math import isqrt

from unprm.answers.mathtext.exact import Exact, NotExact

DIGITS = 90  # of the key of an irrational number
PRECISION = 130  # decimal digits that are computed for it
ABSORBED = 85  # a term smaller than 10**-ABSORBED times its sum would not affect the key
_SCRAMBLE = 1_234_567_891_011_121_314_151_617_181_921  # over 10**30
_MAX_EXPONENT_BITS = 200_000
_MAX_HEIGHT_DIGITS = 20


class Absorbed(Exception):
    """A term is too small relative to the others to affect the key, so the key would be that of another
    number."""


def rational_key(value: Fraction) -> str:
    """The key of a rational: itself, in lowest terms, or its digest if it is long."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) <= 320:
        return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)
    return "#" + digest(f"{value.numerator:x}/{value.denominator:x}")


def digest(text: str) -> str:
    """A fixed-length stand-in for a long text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def real_key(numerator: int, denominator: int) -> str:
    """The key of an irrational number that numerator/denominator approximates to at least 100 digits."""
    sign, numerator = ("-", -numerator) if numerator < 0 else ("", numerator)
    numerator *= _SCRAMBLE
    magnitude = (numerator.bit_length() - denominator.bit_length()) * 30103 // 100000
    shift = DIGITS - magnitude + 31
    scaled = numerator * 10**shift // denominator if shift >= 0 else numerator // (denominator * 10**-shift)
    digits = str(scaled)
    return f"~{sign}{digits[:DIGITS]}e{len(digits) - shift}"


def approximate_key(mantissa: int, exponent: int) -> str:
    """The key of a real that mantissa * 2**exponent approximates to at least 100 digits; that of a rational if it
    is one of small numerator and denominator. Raises `NotExact` if the number is far too large or small."""
    if mantissa == 0:
        return "0"
    if abs(exponent) + mantissa.bit_length() > _MAX_EXPONENT_BITS:
        raise NotExact
    numerator, denominator = (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)
    value = Fraction(numerator, denominator)
    simple = value.limit_denominator(10**_MAX_HEIGHT_DIGITS)
    if abs(value - simple) * 10**100 <= abs(value) and abs(simple.numerator) < 10 ** (2 * _MAX_HEIGHT_DIGITS):
        return rational_key(simple)
    return real_key(numerator, denominator)


def exact_key(value: Exact) -> str:
    """The key of an exact value. Raises `Absorbed`."""
    parts = [Exact({b: c for b, c in value.terms.items() if b[2] == j}) for j in (0, 1)]
    real, imaginary = (_part_key(part) for part in parts)
    return complex_key(real, imaginary)


def complex_key(real: str, imaginary: str) -> str:
    """The key of a number from the keys of its parts."""
    return real if imaginary == "0" else f"{real}|{imaginary}i"


def _part_key(value: Exact) -> str:
    if all(basis[:2] == (1, 0) for basis in value.terms):
        return rational_key(sum(value.terms.values(), Fraction(0)))
    scale = 10**PRECISION
    terms = [_scaled(n, k, coefficient, scale) for (n, k, _), coefficient in value.terms.items()]
    total, largest, smallest = sum(terms), max(map(abs, terms)), min(map(abs, terms))
    if smallest * 10**ABSORBED < largest:
        raise Absorbed
    if total.bit_length() < 332:  # 100 digits must be left
        raise NotExact
    return real_key(total, scale)


def _scaled(radicand: int, pi_power: int, coefficient: Fraction, scale: int) -> int:
    """coefficient * sqrt(radicand) * pi**pi_power * scale, accurate to about one unit."""
    value = isqrt(radicand * scale * scale)
    for _ in range(abs(pi_power)):
        value = value * pi(PRECISION) // scale if pi_power > 0 else value * scale // pi(PRECISION)
    return value * coefficient.numerator // coefficient.denominator


@cache
def pi(digits: int) -> int:
    """floor(pi * 10**digits), or one off, by Machin's formula."""
    unit = 10 ** (digits + 10)
    return (16 * _arctan_inverse(5, unit) - 4 * _arctan_inverse(239, unit)) // 10**10


def _arctan_inverse(x: int, unit: int) -> int:
    total = term = unit // x
    n, sign = 3, -1
    while term:
        term //= x * x
        total += sign * (term // n)
        n, sign = n + 2, -sign
    return total
