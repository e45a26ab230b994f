"""Evaluates closed expressions: exactly where the result is rational, else as balls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, comb, factorial, floor, gcd, lcm, prod

from flint import acb, arb, fmpz

from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, Unreadable, mapped
from unprm.answers.mathtext.values import (
    Undecided,
    Undefined,
    Value,
    added,
    argument,
    ball,
    height,
    integer,
    inverted,
    is_negative,
    settled,
)

_MAX_DEGREE = 10**6  # of a root; higher ones are too near to 1
_MAX_BITS = 4096  # of a rational
_MAX_FACTORS = 200  # of a binomial coefficient that isn't of integers
_ONE = Fraction(1)


@dataclass(slots=True)
class Evaluator:
    """Evaluates closed trees, `left` of whose nodes it may still compute: so hostile answers cost little. `real` makes
    roots and logarithms of negatives undefined.

    Raises `Undefined`, `Undecided` (also beyond its limits), and `Unreadable` for what isn't a number."""

    left: int
    real: bool = False

    def value(self, node: Node) -> Value:
        """The value of a closed tree."""
        if not self.left:
            raise Undecided
        self.left -= 1
        match node:
            case Number(value, _):
                return value
            case Symbol("\\pi"):
                return acb.pi()
            case Symbol("e"):
                return acb(1).exp()
            case Symbol("i"):
                return acb(0, 1)
            case Call(head, args):
                return self._call(head, args)
        raise Unreadable("not a number")

    def _call(self, head: str, args: tuple[Node, ...]) -> Value:
        values = [self.value(_in_radians(arg) if head in _TRIGONOMETRIC else arg) for arg in args]
        match head:
            case "+":
                return self._sum(values)
            case "*":
                return self._product(values)
            case "^":
                return self._power(*values)
            case "root":
                return self._power(values[0], inverted(values[1]))
            case "binom":
                return self._binomial(*values)
            case "!":
                return self._factorial(values[0])
        if head in _ARITHMETIC:
            return _ARITHMETIC[head](*values)
        return _ordered(head, values) if head in _ORDERED else self._function(head, values)

    def _bounded(self, value: Fraction) -> Fraction:
        if height(value) > _MAX_BITS:
            raise Undecided
        return value

    def _sum(self, values: Iterable[Value]) -> Value:
        rational, balls = Fraction(0), list[acb]()
        for value in values:
            if isinstance(value, Fraction):
                rational = self._bounded(rational + value)
            else:
                balls.append(value)
        return added([*balls, ball(rational)]) if balls else rational

    def _product(self, values: Iterable[Value]) -> Value:
        rational, balls = _ONE, list[acb]()
        for value in values:
            if isinstance(value, Fraction):
                rational = self._bounded(rational * value)
            else:
                balls.append(value)
        return settled(prod(balls, start=ball(rational))) if balls and rational else rational

    def _power(self, base: Value, exponent: Value) -> Value:
        """The power; with an exponent of odd denominator the real one of a negative base."""
        if base == 0:
            if not ball(exponent).real > 0:
                raise Undefined
            return base
        if not isinstance(exponent, Fraction):
            if self.real and is_negative(base):
                raise Undefined
            return settled(argument(exponent * ball(base).log()).exp())
        root = self._root(base, exponent.denominator)
        if isinstance(root, Fraction):
            return self._rational_power(root, exponent.numerator)
        return settled(root ** fmpz(exponent.numerator))

    def _rational_power(self, base: Fraction, power: int) -> Fraction:
        if abs(base) == 1:
            return base if power % 2 else _ONE
        if (height(base) - 1) * abs(power) > _MAX_BITS:
            raise Undecided
        return base**power

    def _root(self, base: Value, degree: int) -> Value:
        """The real root if there is one (also of negatives, for an odd degree), else the principal one."""
        if degree == 1:
            return base
        if degree > _MAX_DEGREE:
            raise Undecided
        if is_negative(base):
            if degree % 2:
                return -self._root(-base, degree)
            if self.real:
                raise Undefined
        elif isinstance(base, Fraction):
            root = Fraction(*(int(fmpz(part).root(degree)) for part in base.as_integer_ratio()))
            if root**degree == base:
                return root
        return settled(ball(base).root(degree))

    def _factorial(self, value: Value) -> Value:
        n = integer(value)
        if n is None:
            return self._function("gamma", [self._sum([value, _ONE])])
        if n < 0:
            raise Undefined
        if n * n.bit_length() > _MAX_BITS:
            raise Undecided
        return Fraction(factorial(n))

    def _binomial(self, over: Value, under: Value) -> Value:
        n, k = integer(over), integer(under)
        if k is None:
            below = (under, self._sum([over, -under]))
            return self._product([self._factorial(over), *(inverted(self._factorial(value)) for value in below)])
        if k < 0:
            return Fraction(0)
        if n is not None and n >= 0:
            if min(k, abs(n - k)) * n.bit_length() > _MAX_BITS:
                raise Undecided
            return Fraction(comb(n, k))
        if k > _MAX_FACTORS:
            raise Undecided
        return self._product([Fraction(1, factorial(k)), *(self._sum([over, Fraction(-j)]) for j in range(k))])

    def _function(self, head: str, values: list[Value]) -> Value:
        if head not in _FUNCTIONS and head not in _QUOTIENTS and head != "log":
            raise Unreadable(head)
        value = values[0]
        if head == "log":  # of base 10 if none is given, as in school
            base = values[1] if len(values) > 1 else Fraction(10)
            return self._product([self._function("ln", [value]), inverted(self._function("ln", [base]))])
        if head in _QUOTIENTS:
            over, under = (settled(part(argument(value))) for part in _QUOTIENTS[head])
            return self._product([over, inverted(under)])
        negative, steep = self.real and is_negative(value), self.real and abs(ball(value)) > 1
        if (head == "ln" and (value == 0 or negative)) or (head in ("arcsin", "arccos") and steep):
            raise Undefined
        if head == "tanh" and abs(ball(value)) > 40:  # it would be 1 to all digits of its key
            raise Undecided
        return settled(_FUNCTIONS[head](ball(value) if head in ("ln", "gamma") else argument(value)))


def _in_radians(node: Node) -> Node:
    if isinstance(node, Call) and node.head == "°":
        return Call("*", (node.args[0], Symbol("\\pi"), Number(Fraction(1, 180))))
    return mapped(node, _in_radians)


def _integers(*values: Value) -> list[int]:
    found = [integer(value) for value in values]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        raise Unreadable("not an integer")
    return known


def _ordered(head: str, values: list[Value]) -> Value:
    """A function of real numbers that compares them."""
    of_rationals, of_balls = _ORDERED[head]
    rationals = [value for value in values if isinstance(value, Fraction)]
    if len(rationals) == len(values):
        return Fraction(of_rationals(*rationals))
    if not all(ball(value).imag.is_zero() for value in values):
        raise Unreadable("an order of complex numbers")
    reals = [ball(value).real for value in values]
    return settled(acb(reduce(of_balls, reals) if len(reals) > 1 else of_balls(reals[0])))


_ARITHMETIC: dict[str, Callable[..., Value]] = {
    "neg": lambda value: -value,
    "inv": inverted,
    "°": lambda value: value,
    "%": lambda value: value / 100,
    "abs": lambda value: abs(value) if isinstance(value, Fraction) else acb(abs(value)),
    "gcd": lambda *values: Fraction(gcd(*_integers(*values))),
    "lcm": lambda *values: Fraction(lcm(*_integers(*values))),
}
_ORDERED: dict[str, tuple[Callable[..., Fraction | int], Callable[..., arb]]] = {
    "floor": (floor, arb.floor), "ceil": (ceil, arb.ceil), "max": (max, arb.max), "min": (min, arb.min),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[acb], acb]] = {
    "sin": acb.sin, "cos": acb.cos, "ln": acb.log, "exp": acb.exp, "gamma": acb.gamma, "arcsin": acb.asin,
    "arccos": acb.acos, "arctan": acb.atan, "sinh": acb.sinh, "cosh": acb.cosh, "tanh": acb.tanh,
}  # fmt: skip
_QUOTIENTS: dict[str, tuple[Callable[[acb], acb], Callable[[acb], acb]]] = {
    "tan": (acb.sin, acb.cos), "cot": (acb.cos, acb.sin), "sec": (lambda _: acb(1), acb.cos),
    "csc": (lambda _: acb(1), acb.sin),
}  # fmt: skip
_TRIGONOMETRIC = frozenset(["sin", "cos", *_QUOTIENTS])
