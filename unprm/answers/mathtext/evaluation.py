"""Evaluates expressions: exactly where the result is rational, else as balls."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb, factorial, prod
from operator import add, mul

from flint import acb, fmpz

from unprm.answers.mathtext.tree import ONE, Call, Node, Number, Symbol, Unreadable, mapped, quotient
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
_DEGREE = quotient(Symbol("\\pi"), Number(Fraction(180)))


@dataclass(slots=True)
class Evaluator:
    """Evaluates trees, `left` of whose nodes it may still compute: so hostile answers cost little. `real` makes roots
    and logarithms of negatives undefined; `point` has the values of unknowns.

    Raises `Undefined`, `Undecided` (also beyond its limits), and `Unreadable` for what isn't a number."""

    left: int
    real: bool = False
    point: Mapping[str, Number] = field(default_factory=dict)

    def value(self, node: Node) -> Value:
        """The value of a tree."""
        if not self.left:
            raise Undecided
        self.left -= 1
        match node:
            case Number(value, _):
                return value
            case Symbol(name) if name in self.point:
                return self.point[name].value
            case Symbol(name) if name in _CONSTANTS:
                return _CONSTANTS[name]()
            case Call(head, args):
                values = [self.value(_in_radians(arg) if head in _TRIGONOMETRIC else arg) for arg in args]
                return self._call(head, *values)
        raise Unreadable("not a number")

    def _call(self, head: str, *values: Value) -> Value:
        match head:
            case "+":
                rational, balls = _combined(values, add, Fraction(0))
                return added([*balls, ball(rational)]) if balls else rational
            case "*":
                return _product(*values)
            case "^":
                return self._power(*values)
            case "root":
                return self._power(values[0], inverted(values[1]))
            case "log":  # of base 10 if none is given, as in school
                value, base = (*values, Fraction(10))[:2]
                return _product(self._call("ln", value), inverted(self._call("ln", base)))
        if head in _PLAIN:
            return _PLAIN[head](*values)
        value = values[0]
        if head in _QUOTIENTS:
            over, under = (settled(part(argument(value))) for part in _QUOTIENTS[head])
            return _product(over, inverted(under))
        if head not in _FUNCTIONS:
            raise Unreadable(head)
        negative, steep = self.real and is_negative(value), self.real and abs(ball(value)) > 1
        if (head == "ln" and (value == 0 or negative)) or (head in ("arcsin", "arccos") and steep):
            raise Undefined
        return settled(_FUNCTIONS[head](ball(value) if head == "ln" else argument(value)))

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
        root, power = self._root(base, exponent.denominator), exponent.numerator
        if not isinstance(root, Fraction):
            return settled(root ** fmpz(power))
        if abs(root) == 1:
            return root ** (power % 2)
        if (height(root) - 1) * abs(power) > _MAX_BITS:
            raise Undecided
        return root**power

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


def _in_radians(node: Node) -> Node:
    if isinstance(node, Call) and node.head == "°":
        return Call("*", (node.args[0], _DEGREE))
    return mapped(node, _in_radians)


def _combined(
    values: Iterable[Value], combine: Callable[[Fraction, Fraction], Fraction], rational: Fraction
) -> tuple[Fraction, list[acb]]:
    """The rationals, combined, and the balls."""
    balls: list[acb] = []
    for value in values:
        if not isinstance(value, Fraction):
            balls.append(value)
            continue
        rational = combine(rational, value)
        if height(rational) > _MAX_BITS:
            raise Undecided
    return rational, balls


def _product(*values: Value) -> Value:
    rational, balls = _combined(values, mul, ONE.value)
    return settled(prod(balls, start=ball(rational))) if balls and rational else rational


def _factorial(value: Value) -> Value:
    n = _natural(value)
    if n * n.bit_length() > _MAX_BITS:
        raise Undecided
    return Fraction(factorial(n))


def _binomial(over: Value, under: Value) -> Value:
    n, k = _natural(over), _natural(under)
    if min(k, abs(n - k)) * n.bit_length() > _MAX_BITS:
        raise Undecided
    return Fraction(comb(n, k))


def _natural(value: Value) -> int:
    n = integer(value)
    if n is None or n < 0:
        raise Unreadable("not a natural number")
    return n


_CONSTANTS: dict[str, Callable[[], Value]] = {
    "\\pi": acb.pi, "e": lambda: acb(1).exp(), "i": lambda: acb(0, 1),
}  # fmt: skip
_PLAIN: dict[str, Callable[..., Value]] = {
    "neg": lambda value: -value,
    "inv": inverted,
    "°": lambda value: value,
    "%": lambda value: value / 100,
    "abs": lambda value: abs(value) if isinstance(value, Fraction) else acb(abs(value)),
    "!": _factorial,
    "binom": _binomial,
}
_FUNCTIONS: dict[str, Callable[[acb], acb]] = {
    "sin": acb.sin, "cos": acb.cos, "ln": acb.log, "exp": acb.exp, "arcsin": acb.asin, "arccos": acb.acos,
    "arctan": acb.atan,
}  # fmt: skip
_QUOTIENTS: dict[str, tuple[Callable[[acb], acb], Callable[[acb], acb]]] = {
    "tan": (acb.sin, acb.cos), "cot": (acb.cos, acb.sin), "sec": (lambda _: acb(1), acb.cos),
    "csc": (lambda _: acb(1), acb.sin),
}  # fmt: skip
_TRIGONOMETRIC = frozenset(["sin", "cos", *_QUOTIENTS])
