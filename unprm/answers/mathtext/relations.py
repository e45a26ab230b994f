"""Computes the keys of equations, inequalities and sets of real numbers.

A set of real numbers, such as the solutions of an inequality, is described by the numbers where it may begin or end,
and by which of these, and of the gaps between them, belong to it: so it has one key however it is written.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cmp_to_key
from itertools import chain, groupby, pairwise

from unprm.answers.mathtext.quantities import quantity
from unprm.answers.mathtext.scalars import Scalars, sample_point
from unprm.answers.mathtext.tree import (
    ONE,
    TWO,
    ZERO,
    Call,
    Group,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Unreadable,
    children,
    difference,
    mapped,
    negative,
    quotient,
    substituted,
    symbols,
)
from unprm.answers.mathtext.values import Undecided

_REALS, _INFINITE = Symbol("\\mathbb{R}"), Symbol("\\infty")
_MINUS_INFINITE = negative(_INFINITE)
_COORDINATES = frozenset("xyz")
# The signs of the left side minus the right one for which a relation holds.
_HOLDS = {"<": (-1,), "\\leq": (-1, 0), ">": (1,), "\\geq": (0, 1), "=": (0,), "\\neq": (-1, 1)}
_MAX_BARS = 2  # absolute values in an expression whose zeros are computed


class Relations:
    """Keys of relations and of sets of real numbers; `key_of` computes the key of any node."""

    def __init__(self, scalars: Scalars, key_of: Callable[[Node], str]) -> None:
        self.scalars = scalars
        self.key_of = key_of

    def key(self, relation: Relation) -> str:
        """The key. Raises `Unreadable` and `Undecided` for relations that must be compared as written."""
        if set(relation.operators) == {"="}:
            return self._equation(relation.args)
        with suppress(Undecided, Unreadable):
            return self.set_key(relation)
        if len(relation.args) > 2:
            raise Unreadable("a chain of relations")
        operator, (left, right) = relation.operators[0], relation.args
        if operator == "\\approx":
            return self.key_of(right if isinstance(left, Symbol) else left)
        if operator == "\\neq":
            return f"neq {self.scalars.proportions(difference(left, right), signed=False)}"
        if operator not in _HOLDS:
            raise Unreadable(operator)
        larger, smaller = (left, right) if operator in (">", "\\geq") else (right, left)
        closed = 0 in _HOLDS[operator]
        return f"positive {closed} {self.scalars.proportions(difference(larger, smaller), signed=True)}"

    def _equation(self, sides: tuple[Node, ...]) -> str:
        """The key of the solutions, as far as they are known; of a calculation (``x = 1+1 = 2``), of its result, which
        alone may have a unit."""
        if len(sides) > 2 and isinstance(sides[0], Symbol | Text):
            sides = sides[1:]
        if len(sides) == 2 and any(map(symbols, sides)):
            return self._implicit(difference(*sides))
        *others, result = sides
        measured = quantity(result)
        if len(set(map(self.key_of, (*others, measured[0] if measured else result)))) > 1:
            raise Unreadable("an equation that is false")
        return self.key_of(result)

    def _implicit(self, zero: Node) -> str:
        """The key of ``zero = 0``: of its solutions if it has one unknown, of an expression if it is linear in its last
        coordinate, else of all equations that are proportional to it."""
        names = symbols(zero)
        with suppress(Undecided, Unreadable):
            if len(names) == 1:
                solutions = [x for x in self._zeros(zero) if not self.scalars.sign(substituted(zero, {max(names): x}))]
                if solutions:
                    return list_of(set(map(self.key_of, solutions)))
            elif names <= _COORDINATES:
                return self.key_of(self._linear_zero(zero, max(names)))
        return f"equation {self.scalars.proportions(zero, signed=False)}"

    def _linear_zero(self, node: Node, name: str) -> Node:
        """Where an expression that is linear in an unknown is 0. Raises `Undecided` for others."""
        rest = substituted(node, {name: ZERO})
        slope = self._number(substituted(difference(substituted(node, {name: ONE}), rest), sample_point(node)))
        line = Call("+", (rest, Call("*", (slope, Symbol(name)))))
        if not self.scalars.sign(slope) or not self.scalars.is_zero(difference(node, line)):
            raise Undecided
        return negative(quotient(rest, slope))

    def _number(self, closed: Node) -> Node:
        """A closed expression, as a literal if it is rational."""
        value = self.scalars.rational(closed)
        return closed if value is None else Number(value)

    def _zeros(self, node: Node) -> list[Node]:
        """The numbers for which an expression in one unknown may be 0, if it is linear, or quadratic with rational
        coefficients, where absolute values may be either sign. Raises `Undecided` and `Unreadable` for others."""
        branches = [node]
        for _ in range(_MAX_BARS):
            branches = [other for branch in branches for other in _without_bars(branch)]
        return [zero for branch in branches for zero in self._polynomial_zeros(branch)]

    def _polynomial_zeros(self, node: Node) -> list[Node]:
        names = symbols(node)
        if len(names) != 1:
            raise Unreadable("no or several unknowns")
        name = max(names)
        with suppress(Undecided):
            return [self._linear_zero(node, name)]
        below, c, above = (self.scalars.rational(substituted(node, {name: Number(Fraction(x))})) for x in (-1, 0, 1))
        if below is None or c is None or above is None:
            raise Undecided
        a, b = (above + below) / 2 - c, (above - below) / 2
        x = Symbol(name)
        terms = Call("*", (Number(a), x, x)), Call("*", (Number(b), x)), Number(c)
        if not a or not self.scalars.is_zero(difference(node, Call("+", terms))):
            raise Undecided
        discriminant = (b * b - 4 * a * c) / (4 * a * a)
        middle, root = Number(-b / (2 * a)), Call("root", (Number(discriminant), TWO))
        return [Call("+", (middle, root)), Call("+", (middle, negative(root)))] if discriminant >= 0 else []

    def set_key(self, node: Node) -> str:
        """The key of a set of real numbers. Raises `Undecided` and `Unreadable` if the node isn't one, or its ends
        can't be ordered."""
        if len(symbols(node) - {_REALS.name}) > 1:
            raise Unreadable("several unknowns")
        ends = list({self.scalars.closed(end): self._number(end) for end in self._ends(node)}.values())
        ends.sort(key=cmp_to_key(lambda left, right: self.scalars.sign(difference(left, right))))
        inside = [self._contains(node, number) for number in _with_gaps(ends)]
        keys = [self.scalars.key(end) for end in (_MINUS_INFINITE, *ends, _INFINITE)]
        pieces = []
        for contained, run in groupby(range(len(inside)), inside.__getitem__):
            if contained:  # gaps have even places, ends odd ones
                places = list(run)
                first, last = places[0], places[-1]
                low, high = keys[(first + 1) // 2], keys[last // 2 + 1]
                brackets = "[" if first % 2 else "(", "]" if last % 2 else ")"
                pieces.append(f"{{{low}}}" if low == high else interval(brackets[0], low, high, brackets[1]))
        return union_of(pieces) if pieces else list_of([])

    def _ends(self, node: Node) -> list[Node]:
        """The numbers where a set may begin or end, in any order."""
        match node:
            case Group("(" | "[", (_, _) as ends, ")" | "]"):
                return [end for end in ends if end not in (_INFINITE, _MINUS_INFINITE)]
            case Group("\\{", items, _):
                return list(items)
            case Relation(_, sides):
                return [zero for pair in pairwise(sides) for zero in self._zeros(difference(*pair))]
        return [end for child in children(node) for end in self._ends(child)]

    def _contains(self, node: Node, number: Node) -> bool:
        match node:
            case Symbol("\\mathbb{R}"):
                return True
            case Group("(" | "[" as opening, (low, high), ")" | "]" as closing):
                above = self._holds("\\leq" if opening == "[" else "<", low, number)
                return above and self._holds("\\leq" if closing == "]" else "<", number, high)
            case Group("\\{", items, _):
                return any(self._holds("=", item, number) for item in items)
            case Relation(operators, sides):
                values = [substituted(side, dict.fromkeys(symbols(side), number)) for side in sides]
                return all(map(self._holds, operators, values, values[1:]))
            case Call("cup", args):
                return any(self._contains(arg, number) for arg in args)
            case Call("cap", args):
                return all(self._contains(arg, number) for arg in args)
            case Call("setminus", (left, right)):
                return self._contains(left, number) and not self._contains(right, number)
        raise Unreadable("not a set of real numbers")

    def _holds(self, operator: str, left: Node, right: Node) -> bool:
        if operator not in _HOLDS:
            raise Unreadable(operator)
        if left == _MINUS_INFINITE or right == _INFINITE:
            return True
        if left == _INFINITE or right == _MINUS_INFINITE:
            return False
        return self.scalars.sign(difference(left, right)) in _HOLDS[operator]


def _with_gaps(ends: Sequence[Node]) -> list[Node]:
    """A number below all ends, then each end with a number above it, which is below the next end."""
    if not ends:
        return [ZERO]
    gaps = [quotient(Call("+", pair), TWO) for pair in pairwise(ends)]
    below, above = difference(ends[0], ONE), Call("+", (ends[-1], ONE))
    return [below, *chain.from_iterable(zip(ends, [*gaps, above], strict=True))]


def _without_bars(node: Node) -> list[Node]:
    """The node with its first absolute value of an unknown replaced by either sign; the node if it has none."""
    found = _first_bars(node)
    return [_replaced(node, found, inner) for inner in (found.args[0], negative(found.args[0]))] if found else [node]


def _first_bars(node: Node) -> Call | None:
    if isinstance(node, Call) and node.head == "abs" and symbols(node):
        return node
    return next(filter(None, map(_first_bars, children(node))), None)


def _replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node == old else mapped(node, lambda child: _replaced(child, old, new))


def interval(opening: str, *parts: str) -> str:
    """The key of a tuple or an interval: its brackets and the keys between them."""
    *keys, closing = parts
    return f"{opening}{','.join(keys)}{closing}"


def list_of(keys: Iterable[str]) -> str:
    """The key of items in any order; for a single item, its own key."""
    ordered = sorted(keys)
    return ordered[0] if len(ordered) == 1 else f"list({' '.join(ordered)})"


def union_of(pieces: Iterable[str]) -> str:
    """The key of a union of sets, in any order."""
    ordered = sorted(set(pieces))
    return ordered[0] if len(ordered) == 1 else f"union({' '.join(ordered)})"
