"""Makes expressions with absolute values, maxima, roundings and roots of squares smooth.

Values at a few points can't distinguish ``|x-40|`` from ``40-x``. So a part with a kink is replaced by a new unknown,
named after its meaning: ``|2x-80|`` and ``\\max(80-2x, 2x-80)`` become twice the same one, 40-x stays. Results that
are equal are equal everywhere; some equal expressions give different results.
"""

from collections.abc import Callable
from fractions import Fraction

from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, children, mapped, symbols

_KINKED = frozenset(["abs", "max", "min", "floor", "ceil"])
_GROWING = frozenset(["exp", "sinh", "cosh", "tanh", "!", "binom"])
_LIMITED = frozenset(["ln", "log"])
_HALF, _TWO = Number(Fraction(1, 2)), Number(Fraction(2))

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
        """The node with an unknown in place of everything with a kink. Raises what the callables raise."""
        if not any(head in _KINKED or head == "even root" for head in _heads(node)):
            return node
        match node:
            case Call("^", (Call("abs", (inner,)), power)) if _even(_literal(power)):
                return Call("^", (self.smooth(inner), power))
        match mapped(node, self.smooth):
            case Call("abs", (inner,)):
                return self._distance(Call("^", (inner, _TWO)))
            case Call("max" | "min" as head, (left, right)):
                apart = self._distance(Call("^", (Call("+", (left, Call("neg", (right,)))), _TWO)))
                return Call("*", (_HALF, Call("+", (left, right, apart if head == "max" else Call("neg", (apart,))))))
            case Call("max" | "min" | "floor" | "ceil" as head, args):
                return Symbol(f"{head} {' '.join(sorted(map(self._key, args)))}")
            case Call("root", (inner, degree)) | Call("^", (inner, degree)) if self._is_root_of_square(inner, degree):
                return self._distance(inner)
            case smooth:
                return smooth

    def _is_root_of_square(self, inner: Node, degree: Node) -> bool:
        return _literal(degree) in (Fraction(2), Fraction(1, 2)) and self._is_square(inner)

    def _distance(self, square: Node) -> Node:
        """The root of a square of unknowns: a factor, and an unknown that is named after the square."""
        value, key = self._proportional(square)
        return Call("*", (Call("root", (value, _TWO)), Symbol(f"|{key}|")))
