"""Computes the key of an expression, the same for equal expressions.

A closed expression has the key of its number. One with unknowns has the keys of its values at fixed points:
each unknown gets twelve numbers, which depend only on its name, some integers, some of either sign, some far away,
where kinks as in ``|x-40|`` show; with unknown exponents eight. A missing value, because of the root or logarithm of a
negative number, for example, is part of the key.

A long decimal counts as the one simple number that it rounds: 0.3333333333 as 1/3, 9.42477796 as 3 pi,
4.123105625617661 as the root of 17. Agreement to some digits is not an equivalence relation, so each decimal is
replaced independently.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt, ulp

from unprm.answers.mathtext.evaluation import Evaluator, Undecided, Undefined, Value, number_key
from unprm.answers.mathtext.tree import (
    TWO,
    Call,
    Node,
    Number,
    Symbol,
    Unreadable,
    has_words,
    negative,
    nodes,
    quotient,
    substituted,
    symbols,
)

_UNDEFINED = "?"
_LEAST = 3  # points at which an expression must have a value
_MAX_NODES = 2000  # computed for one answer, at all points; of 5,450 real answers one takes more than 700
# (lowest, highest numerator, denominator, with either sign): above 1, below 1, of either sign, integers, and far away.
_RANGES = (
    (28, 89, 23, False), (62, 311, 17, False), (2, 30, 31, False), (3, 36, 37, False), (2, 40, 41, True),
    (5, 95, 29, True), (2, 23, 1, False), (3, 30, 1, False), (1000, 4000, 7, False), (1000, 4000, -11, False),
    (10**6, 4 * 10**6, 7, False), (10**6, 4 * 10**6, -11, False),
)  # fmt: skip
_NEAR = 8
_LONG, _LONGEST = 9, 40  # significant digits of a decimal that may be the rounding of a simple number
# A simple number's numerator times denominator has so many digits less than the decimal that it is taken for: so a
# random decimal is taken for one with a probability of about 1 in 10**5.
_SPARE = 5
_NOISE = 4  # units in the last place by which a double may differ from the short decimal that it stands for
_PI = Fraction("3.141592653589793238462643383279502884197169399375105820974945")


class Scalars:
    """Keys of the expressions in one answer, which may cost `_MAX_NODES` in total."""

    def __init__(self) -> None:
        self._evaluator = Evaluator(_MAX_NODES)

    def key(self, node: Node) -> str:
        """The key. Raises `Undecided` and `Unreadable`."""
        match node:
            case Symbol("\\infty"):
                return "oo"
            case Call("neg", (Symbol("\\infty"),)):
                return "-oo"
        node = identified(node)
        if has_words(node):
            raise Unreadable("words")
        if not symbols(node):
            return self.closed(node)
        keys = list(self._keys_at(node, _points(node)))
        if keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        return keys[0] if len(set(keys)) == 1 else ";".join(keys)

    def sign(self, node: Node) -> int:
        """The sign of a closed real expression. Raises `Undecided` if it isn't one."""
        key = self.closed(node)
        if "|" in key or key.startswith("#"):
            raise Undecided
        return 0 if key == "0" else -1 if key.startswith(("-", "~-")) else 1

    def rational(self, node: Node) -> Fraction | None:
        """The value of a closed expression if it is rational."""
        try:
            value = self._value(node)
        except (Undecided, Undefined):
            return None
        return value if isinstance(value, Fraction) else None

    def proportions(self, node: Node, *, signed: bool) -> str:
        """The key of an expression up to a constant factor, up to a positive one if `signed`."""
        points = list(_points(node))
        keys = list(self._keys_at(node, points))
        pivot = next((point for point, key in zip(points, keys, strict=True) if key not in ("0", _UNDEFINED)), None)
        if pivot is None or keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        unit = substituted(node, pivot)
        ratio = quotient(node, negative(unit) if signed and self.sign(unit) < 0 else unit)
        defined = [point for point, key in zip(points, keys, strict=True) if key != _UNDEFINED]
        ratios = self._keys_at(ratio, defined)
        return ";".join(key if key == _UNDEFINED else next(ratios) for key in keys)

    def closed(self, node: Node) -> str:
        """The key of an expression without unknowns."""
        try:
            return number_key(self._value(node))
        except Undefined:
            raise Undecided from None

    def is_zero(self, node: Node) -> bool:
        """Whether an expression is 0 at all points."""
        return all(key == "0" for key in self._keys_at(node, _points(node)))

    def _keys_at(self, node: Node, points: Iterable[Mapping[str, Number]]) -> Iterator[str]:
        """The keys of an expression's real values at some points."""
        for point in points:
            try:
                yield number_key(self._value(node, point))
            except (Undefined, Undecided):
                yield _UNDEFINED

    def _value(self, node: Node, point: Mapping[str, Number] | None = None) -> Value:
        self._evaluator.real, self._evaluator.point = point is not None, point or {}
        return self._evaluator.value(node)


def _points(node: Node) -> Iterator[Mapping[str, Number]]:
    """The values of a node's unknowns at each point. Raises `Undecided` if it has kinks and would grow too large where
    they may be."""
    names = symbols(node)
    calls = [each for each in nodes(node) if isinstance(each, Call) and symbols(each)]
    grows = any(each.head == "exp" or (each.head == "^" and symbols(each.args[1])) for each in calls)
    if grows and any(each.head == "abs" for each in calls):
        raise Undecided
    for index in range(_NEAR if grows else len(_RANGES)):
        yield {name: _sample(name, index) for name in names}


def sample_point(node: Node) -> Mapping[str, Number]:
    return next(_points(node))


@lru_cache(maxsize=4096)
def _sample(name: str, index: int) -> Number:
    """The value of an unknown at a point; integers are even at points of even index, odd at the others."""
    noise = int.from_bytes(hashlib.blake2b(f"{index} {name}".encode(), digest_size=8).digest(), "big")
    low, high, denominator, signed = _RANGES[index]
    numerator = low + noise // 2 % (high - low + 1)
    if denominator == 1:
        numerator = numerator // 2 * 2 + index % 2
    return Number(Fraction(-numerator if signed and noise % 2 else numerator, denominator))


def identified(node: Node) -> Node:
    """The simple rational, multiple of pi or square root that a long decimal rounds, also after a sign; any other
    node unchanged."""
    match node:
        case Number():
            return _identified(node)
        case Call("neg", (Number() as decimal,)):
            return negative(_identified(decimal))
    return node


def _identified(decimal: Number) -> Node:
    value, digits = decimal.value, decimal.digits
    if not _LONG <= digits <= _LONGEST or value <= 0:
        return decimal
    # what rounds to the decimal, or is truncated to it, is less than this away from it
    unit = Fraction(10) ** ((Decimal(value.numerator) / Decimal(value.denominator)).adjusted() + 1 - digits)
    if digits in (16, 17):  # a double
        double, short = float(value), Fraction(f"{float(value):.10g}")
        if Fraction(repr(double)) == value and abs(value - short) <= _NOISE * Fraction(ulp(double)):
            return Number(short)
        unit = max(unit, value / 2**52)
    low, high, height = value - unit / 2, value + unit, 10 ** (digits - _SPARE)
    if rational := _simple(low, high, height):
        return Number(rational) if 10**_LONGEST % rational.denominator else decimal
    if multiple := _simple(low / _PI, high / _PI, height):
        return Call("*", (Number(multiple), Symbol("\\pi")))
    if square := _simple(low * low, high * high, height):
        return Call("root", (Number(square), TWO))
    return decimal


def _simple(low: Fraction, high: Fraction, height: int) -> Fraction | None:
    """The only rational between two positive numbers whose numerator times denominator is at most `height`, if any."""
    middle = (low + high) / 2
    simple = middle.limit_denominator(max(1, isqrt(int(height / middle))))
    return simple if low < simple < high and simple.numerator * simple.denominator <= height else None
