"""Closed expressions, evaluated exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, gcd, lcm

from unprm.answers.mathtext.determinants import determinant
from unprm.answers.mathtext.exact import (
    IMAGINARY_UNIT,
    PI,
    Exact,
    NotExact,
    TooBig,
    Undefined,
    added,
    exact,
    inverted,
    multiplied,
    negated,
    rooted,
)
from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, substituted, symbols

_MAX_RADICAND_BITS = 256


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Evaluates closed trees. `bits` limits every integer, `terms` the terms of every value, `loop` those of
    finite sums and products; `real` makes roots of negatives undefined. Raises `NotExact`, `Undefined` and
    `TooBig`."""

    bits: int = 4096
    terms: int = 8
    loop: int = 0
    real: bool = False

    def value(self, node: Node) -> Exact:
        """The value of a closed tree."""
        match node:
            case Number(value, _):
                return exact(value)
            case Symbol("\\pi"):
                return PI
            case Symbol("i"):
                return IMAGINARY_UNIT
            case Call(head, args):
                return self._checked(self._call(head, args))
        raise NotExact

    def _checked(self, value: Exact) -> Exact:
        if len(value.terms) > self.terms:
            raise NotExact
        for (radicand, _, _), coefficient in value.terms.items():
            if _bits(coefficient) > self.bits or radicand.bit_length() > _MAX_RADICAND_BITS:
                raise TooBig
        return value

    def _call(self, head: str, args: tuple[Node, ...]) -> Exact:
        match head:
            case "+":
                return self._sum(args)
            case "*":
                return self._product(args)
            case "^":
                return self._power(self.value(args[0]), self.value(args[1]))
            case "root":
                return self._power(self.value(args[0]), inverted(self.value(args[1])))
            case "sum":
                return self._sum(self.loop_terms(args))
            case "prod":
                return self._product(self.loop_terms(args))
            case "det":
                cells = [self.value(arg) for arg in args]
                return determinant(cells, lambda a, b: self._checked(multiplied(a, b)), added, negated)
        if head not in _FUNCTIONS:
            raise NotExact
        return _FUNCTIONS[head](self, [self.value(arg) for arg in args])

    def _sum(self, args: tuple[Node, ...]) -> Exact:
        return added(map(self.value, args))

    def _product(self, args: tuple[Node, ...]) -> Exact:
        product = exact(Fraction(1))
        for arg in args:
            product = self._checked(multiplied(product, self.value(arg)))
        return product

    def _power(self, base: Exact, exponent: Exact) -> Exact:
        power = exponent.rational()
        if power.denominator > 1:
            return self._integer_power(self._root(base, power.denominator), power.numerator)
        return self._integer_power(base, power.numerator)

    def _integer_power(self, base: Exact, power: int) -> Exact:
        if not base.terms:
            if power <= 0:
                raise Undefined
            return base
        if power < 0:
            base, power = inverted(base), -power
        size = max(_bits(coefficient) for coefficient in base.terms.values())
        if (size > 1 and power * (size - 1) > self.bits) or (power > self.bits and len(base.terms) > 1):
            raise TooBig
        return self._squared_up(base, power)

    def _squared_up(self, base: Exact, power: int) -> Exact:
        result = exact(Fraction(1))
        while power:
            if power & 1:
                result = self._checked(multiplied(result, base))
            power >>= 1
            if power:
                base = self._checked(multiplied(base, base))
        return result

    def _root(self, base: Exact, degree: int) -> Exact:
        """The real root if there is one (also of negatives, for an odd degree), else the principal one."""
        value = base.rational()
        if value < 0 and degree % 2:
            return negated(rooted(-value, degree))
        if value < 0 and self.real:
            raise Undefined
        return rooted(value, degree)

    def loop_terms(self, args: tuple[Node, ...]) -> tuple[Node, ...]:
        """The terms of a finite sum or product: (index, first, last, body)."""
        index, low, high, body = args
        assert isinstance(index, Symbol)
        start, stop = self.value(low).integer(), self.value(high).integer()
        if stop - start >= self.loop or any(index.name in name for name in symbols(body) - {index.name}):
            raise TooBig
        return tuple(substituted(body, {index.name: Number(Fraction(k))}) for k in range(start, stop + 1))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _rationals(function: Callable[..., Fraction | int]) -> Callable[[Arithmetic, list[Exact]], Exact]:
    return lambda arithmetic, values: exact(Fraction(function(*(value.rational() for value in values))))


def _integers(function: Callable[..., int]) -> Callable[[Arithmetic, list[Exact]], Exact]:
    return lambda arithmetic, values: exact(Fraction(function(*(value.integer() for value in values))))


def _factorial(arithmetic: Arithmetic, values: list[Exact]) -> Exact:
    n = values[0].integer()
    if n < 0:
        raise Undefined
    if n * n.bit_length() > arithmetic.bits:
        raise TooBig
    return exact(Fraction(factorial(n)))


def _binomial(arithmetic: Arithmetic, values: list[Exact]) -> Exact:
    n, k = (value.integer() for value in values)
    if n < 0 or k < 0:
        raise NotExact
    if min(k, abs(n - k)) * n.bit_length() > arithmetic.bits:
        raise TooBig
    return exact(Fraction(comb(n, k)))


_FUNCTIONS: dict[str, Callable[[Arithmetic, list[Exact]], Exact]] = {
    "neg": lambda arithmetic, values: negated(values[0]),
    "inv": lambda arithmetic, values: inverted(values[0]),
    "°": lambda arithmetic, values: values[0],
    "%": lambda arithmetic, values: multiplied(values[0], exact(Fraction(1, 100))),
    "!": _factorial,
    "binom": _binomial,
    "abs": _rationals(abs),
    "floor": _rationals(lambda value: value // 1),
    "ceil": _rationals(lambda value: -(-value // 1)),
    "max": _rationals(max),
    "min": _rationals(min),
    "gcd": _integers(gcd),
    "lcm": _integers(lcm),
}
