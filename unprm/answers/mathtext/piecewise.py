"""Makes expressions with absolute values, maxima, roundings and roots of squares smooth.

Values at a few points can't distinguish ``|x-40|`` from ``40-x``. So a part with a kink is replaced by a new unknown,
named after its meaning: ``|2x-80|`` and ``\\max(80-2x, 2x-80)`` become twice the same one, 40-x stays. Results that
are equal are equal everywhere; some equal expressions give different results.
"""

from collections.abc import Callable
from fractions import Fraction

from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, Unreadable, children, mapped, symbols

_KINKED = frozenset(["abs", "max", "min", "floor", "ceil"])
_GROWING = frozenset(["exp", "sinh", "cosh", "tanh", "!", "binom", "sum"])
_LIMITED = frozenset(["ln", "log"])
_HALF = Number(Fraction(1, 2))

Proportional = Callable[[Node], tuple[Node, str]]
"""Gives a value of an expression, a positive number, and the expression's key up to such a factor; it may raise."""


def is_limited(node: Node) -> bool:
    """Whether there are logarithms or even roots of unknowns, so that it may be defined only far away, and nothing
    that would grow too large there."""
    heads = list(_heads(node))
    return any(head in _LIMITED or head == "even root" for head in heads) and not any(
        head in _GROWING or head == "power" for head in heads
    )


def _heads(node: Node) -> list[str]:
    """The heads of calls on unknowns; "even root" and "power" (an unknown in the exponent) for two kinds of calls."""
    if not symbols(node):
        return []
    return [_head(node), *(head for child in children(node) for head in _heads(child))]


def _head(node: Node) -> str:
    match node:
        case Call("root", (_, degree)):
            return "even root" if _even(_literal(degree)) else "root"
        case Call("^", (_, exponent)):
            power = _literal(exponent)
            return "power" if symbols(exponent) else "even root" if power and power.denominator % 2 == 0 else "^"
        case Call(head, _):
            return head
    return ""


def _even(value: Fraction | None) -> bool:
    return value is not None and value.denominator == 1 and value % 2 == 0


def _literal(node: Node) -> Fraction | None:
    """The value of a literal number or fraction."""
    match node:
        case Number(value, _):
            return value
        case Call("neg", (inner,)):
            negated = _literal(inner)
            return None if negated is None else -negated
        case Call("*", (Number(over, _), Call("inv", (Number(under, _),)))) if under:
            return over / under
    return None


class Piecewise:
    """Makes expressions smooth. `key` gives the key of an expression, `proportional` its key up to a factor, and
    `is_square` whether it is the square of a rational expression."""

    def __init__(
        self, key: Callable[[Node], str], proportional: Proportional, is_square: Callable[[Node], bool]
    ) -> None:
        self._key = key
        self._proportional = proportional
        self._is_square = is_square

    def smooth(self, node: Node) -> Node:
        """The node with an unknown in place of everything with a kink. Raises `Unreadable`, and what the
        callables raise."""
        if not any(head in _KINKED or head == "even root" for head in _heads(node)):
            return node
        match node:
            case Call("sum", _):
                raise Unreadable("a sum of what has kinks")
            case Call("^", (Call("abs", (inner,)), exponent)) if _even(_literal(exponent)):
                return Call("^", (self.smooth(inner), exponent))
            case Call(head, args):
                return self._call(head, tuple(map(self.smooth, args)))
        return mapped(node, self.smooth)

    def _call(self, head: str, args: tuple[Node, ...]) -> Node:
        match head, args:
            case ("abs", (inner,)):
                return self._absolute(inner)
            case ("max" | "min", (left, right)):
                apart = self._absolute(Call("+", (left, Call("neg", (right,)))))
                signed = apart if head == "max" else Call("neg", (apart,))
                return Call("*", (_HALF, Call("+", (left, right, signed))))
            case ("max" | "min" | "floor" | "ceil", _):
                keys = sorted(map(self._key, args))
                return Symbol(f"{head} {' '.join(keys)}") if symbols(Call(head, args)) else Call(head, args)
            case ("root", (inner, degree)) if _even(order := _literal(degree)) and order:
                return self._root(inner, order)
            case ("^", (base, exponent)) if (power := _literal(exponent)) and power.denominator % 2 == 0:
                return _power(self._root(base, Fraction(power.denominator)), Fraction(power.numerator))
        return Call(head, args)

    def _absolute(self, node: Node) -> Node:
        """The absolute value, factor by factor."""
        if not symbols(node):
            return Call("abs", (node,))
        match node:
            case Call("*", factors):
                return Call("*", tuple(map(self._absolute, factors)))
            case Call("^", (base, exponent)) if (power := _literal(exponent)) and power.denominator == 1:
                return node if _even(power) else _power(self._absolute(base), power)
        return self._distance(Call("^", (node, Number(Fraction(2)))))

    def _distance(self, square: Node) -> Node:
        """The root of a square of unknowns: a factor, and an unknown that is named after the square."""
        value, key = self._proportional(square)
        return Call("*", (Call("root", (value, Number(Fraction(2)))), Symbol(f"|{key}|")))

    def _root(self, inner: Node, order: Fraction) -> Node:
        """The root of even order, with even powers moved out of it."""
        outside: list[Node] = []
        inside: list[Node] = []
        for factor in _factors(inner):
            match factor:
                case Call("^", (base, exponent)) if symbols(base) and _even(power := _literal(exponent)) and power:
                    rational = power / order
                    even = _even(rational)
                    outside.append(_power(base if even else self._absolute(base), rational))
                case _:
                    inside.append(factor)
        rest = Call("*", tuple(inside)) if len(inside) != 1 else inside[0]
        if not inside:
            root: Node = Number(Fraction(1))
        elif order == 2 and symbols(rest) and self._is_square(rest):
            root = self._distance(rest)
        else:
            root = Call("root", (rest, Number(order)))
        return Call("*", (*outside, root)) if outside else root


def _power(base: Node, power: Fraction) -> Node:
    return Call("^", (base, Number(power))) if power != 1 else base


def _factors(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call) and node.head == "*":
        return tuple(factor for arg in node.args for factor in _factors(arg))
    return (node,)
