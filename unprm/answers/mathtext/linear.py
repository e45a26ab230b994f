"""Linear expressions in one unknown, decomposed as they are written."""

from fractions import Fraction

from unprm.answers.mathtext.tree import Call, Node, Number, Symbol, symbols

_ZERO, _ONE = Number(Fraction(0)), Number(Fraction(1))
MAX_DEGREE = 2
Parts = tuple[Node, Node]


def linear(node: Node, name: str) -> Parts | None:
    """(slope, rest) with node = slope * name + rest, neither of which contains the name; None if the node
    isn't linear as written."""
    if name not in symbols(node):
        return _ZERO, node
    match node:
        case Symbol():
            return _ONE, _ZERO
        case Call("neg", (inner,)):
            parts = linear(inner, name)
            return (negative(parts[0]), negative(parts[1])) if parts else None
        case Call("+", args):
            return _sum([linear(arg, name) for arg in args])
        case Call("*", args):
            return _product(args, name)
    return None


def _sum(parts: list[Parts | None]) -> Parts | None:
    known = [part for part in parts if part]
    if len(known) < len(parts):
        return None
    return Call("+", tuple(slope for slope, _ in known)), Call("+", tuple(rest for _, rest in known))


def _product(args: tuple[Node, ...], name: str) -> Parts | None:
    holders = [arg for arg in args if name in symbols(arg)]
    inner = linear(holders[0], name) if len(holders) == 1 else None
    if inner is None:
        return None
    factors = tuple(arg for arg in args if arg is not holders[0])
    return Call("*", (inner[0], *factors)), Call("*", (inner[1], *factors))


def degree(node: Node, name: str) -> int | None:
    """The degree in an unknown of a polynomial as it is written; None if it isn't written as one."""
    if name not in symbols(node):
        return 0
    match node:
        case Symbol():
            return 1
        case Call("neg" | "+", args):
            degrees = [degree(arg, name) for arg in args]
            return None if None in degrees else max(degree for degree in degrees if degree is not None)
        case Call("*", args):
            degrees = [degree(arg, name) for arg in args]
            return None if None in degrees else sum(degree for degree in degrees if degree is not None)
        case Call("^", (base, Number(power, _))) if power.denominator == 1 and 0 < power <= MAX_DEGREE:
            inner = degree(base, name)
            return None if inner is None else inner * power.numerator
    return None


def difference(left: Node, right: Node) -> Node:
    """left - right."""
    return Call("+", (left, negative(right)))


def negative(node: Node) -> Node:
    """Minus the node."""
    return Call("neg", (node,))


def quotient(over: Node, under: Node) -> Node:
    """over / under."""
    return Call("*", (over, Call("inv", (under,))))
