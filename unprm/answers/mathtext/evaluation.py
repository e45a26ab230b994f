"""Evaluates closed expressions: exactly where the result is rational, else as balls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, prod

from flint import acb, fmpz

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
        return _ARITHMETIC[head](*values) if head in _ARITHMETIC else self._function(head, values)

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
        n = _natural(value)
        if n * n.bit_length() > _MAX_BITS:
            raise Undecided
        return Fraction(factorial(n))

    def _binomial(self, over: Value, under: Value) -> Value:
        n, k = _natural(over), _natural(under)
        if min(k, abs(n - k)) * n.bit_length() > _MAX_BITS:
            raise Undecided
        return Fraction(comb(n, k))

    def _function(self, head: str, values: list[Value]) -> Value:
        value = values[0]
        if head == "log":  # of base 10 if none is given, as in school
            base = values[1] if len(values) > 1 else Fraction(10)
            return self._product([self._function("ln", [value]), inverted(self._function("ln", [base]))])
        if head in _QUOTIENTS:
            over, under = (settled(part(argument(value))) for part in _QUOTIENTS[head])
            return self._product([over, inverted(under)])
        if head not in _FUNCTIONS:
            raise Unreadable(head)
        negative, steep = self.real and is_negative(value), self.real and abs(ball(value)) > 1
        if (head == "ln" and (value == 0 or negative)) or (head in ("arcsin", "arccos") and steep):
            raise Undefined
        return settled(_FUNCTIONS[head](ball(value) if head == "ln" else argument(value)))


def _in_radians(node: Node) -> Node:
    if isinstance(node, Call) and node.head == "°":
        return Call("*", (node.args[0], Symbol("\\pi"), Number(Fraction(1, 180))))
    return mapped(node, _in_radians)


def _natural(value: Value) -> int:
    n = integer(value)
    if n is None or n < 0:
        raise Unreadable("not a natural number")
    return n


_ARITHMETIC: dict[str, Callable[..., Value]] = {
    "neg": lambda value: -value,
    "inv": inverted,
    "°": lambda value: value,
    "%": lambda value: value / 100,
    "abs": lambda value: abs(value) if isinstance(value, Fraction) else acb(abs(value)),
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
