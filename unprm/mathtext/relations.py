"""Equations and inequalities to keys."""

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from itertools import pairwise

from unprm.mathtext.linear import difference, linear, quotient
from unprm.mathtext.scalars import Scalars, Undecided
from unprm.mathtext.tree import Call, Group, Node, Relation, Symbol, Text, Unreadable, symbols

_MIRRORED = {">": "<", "\\geq": "\\leq", "<": ">", "\\leq": "\\geq"}
_COORDINATES = frozenset("xyz")


def is_name(node: Node) -> bool:
    """Whether a node only names something: ``x``, ``f(2)``, ``area``, ``(x,y)``."""
    if isinstance(node, Group):
        return node.opening == "(" and all(isinstance(item, Symbol) for item in node.items)
    return isinstance(node, Text) or (isinstance(node, Symbol) and node.name not in ("\\pi", "\\infty"))


class Relations:
    """Keys of relations; `key` is that of any node."""

    def __init__(self, scalars: Scalars, key: Callable[[Node], str]) -> None:
        self.scalars = scalars
        self.node_key = key

    def key(self, relation: Relation) -> str:
        """The key. Raises `Unreadable` and `Undecided` for what is to be compared as written."""
        operators = set(relation.operators)
        if operators == {"="}:
            return self._equation(list(relation.sides))
        if operators <= {"<", "\\leq"}:
            return self._inequality(relation.operators, relation.sides)
        if operators <= {">", "\\geq"}:
            mirrored = tuple(_MIRRORED[operator] for operator in reversed(relation.operators))
            return self._inequality(mirrored, relation.sides[::-1])
        if len(relation.sides) > 2:
            raise Unreadable("a chain of different relations")
        return self._other(relation.operators[0], *relation.sides)

    def _other(self, operator: str, left: Node, right: Node) -> str:
        if operator == "\\approx":
            return self.node_key(right if is_name(left) else left)
        if operator == "\\in" and isinstance(left, Symbol) and not left.name[0].isupper():
            return self.node_key(right)
        if operator == "\\neq":
            solved = self._solved(difference(left, right))
            if solved is None:
                return f"neq {self.scalars.proportions(difference(left, right), signed=False)}"
            return self.reals_without([solved])
        raise Unreadable(operator)

    def reals_without(self, holes: Sequence[Node]) -> str:
        """The key of all real numbers but some, as a union of intervals. Raises `Undecided` if they have no
        order."""
        ordered = sorted(holes, key=cmp_to_key(self._compared))
        ends = ["-oo", *map(self.node_key, ordered), "oo"]
        return union_of(interval("(", low, high, ")") for low, high in pairwise(ends))

    def _compared(self, left: Node, right: Node) -> int:
        return self.scalars.sign(difference(left, right))

    def _equation(self, sides: list[Node]) -> str:
        """A name = a value is the value; an equation that is linear in its last coordinate, or its only
        unknown, is solved for it; any other is known up to a constant factor."""
        named = False
        while len(sides) > 1 and is_name(sides[0]) and _is_assigned(sides[0], sides[1:]):
            named = True
            sides = sides[1:]
        if len(sides) == 2 and is_name(sides[1]) and not symbols(sides[0]):
            sides = sides[:1]
        if len(sides) == 2:
            return self._implicit(difference(*sides))
        keys = [self.node_key(side) for side in sides]
        if named or len(set(keys)) == 1:
            return keys[-1]
        raise Unreadable("a chain of equations")

    def _implicit(self, zero: Node) -> str:
        solved = self._solved(zero)
        return self.node_key(solved) if solved else f"equation {self.scalars.proportions(zero, signed=False)}"

    def _solved(self, zero: Node) -> Node | None:
        """The value of the unknown for which a linear expression in it is 0."""
        names = symbols(zero)
        if not names or (len(names) > 1 and not names <= _COORDINATES):
            return None
        parts = linear(zero, max(names))
        if parts is None or symbols(parts[0]) or not self.scalars.sign(parts[0]):
            return None
        return Call("neg", (quotient(parts[1], parts[0]),))

    def _inequality(self, operators: tuple[str, ...], sides: tuple[Node, ...]) -> str:
        """The interval of the unknown where there is one and the relation is linear in it."""
        if len(sides) == 2:
            return self._half_line(operators[0], difference(sides[1], sides[0]))
        if len(sides) == 3:
            low, middle, high = sides
            if is_name(middle) and not symbols(low) | symbols(high):
                return _between(operators, self.node_key(low), self.node_key(high))
            bounds = self._bounds(low, middle, high)
            if bounds:
                return _between(operators[:: bounds[0]], *(self.node_key(b) for b in bounds[1:][:: bounds[0]]))
        return f"chain {' '.join(operators)} {' '.join(self.node_key(side) for side in sides)}"

    def _half_line(self, operator: str, positive: Node) -> str:
        names = symbols(positive)
        parts = linear(positive, max(names)) if len(names) == 1 else None
        if parts is None or symbols(parts[0]):
            return f"positive {operator} {self.scalars.proportions(positive, signed=True)}"
        bound = self.node_key(Call("neg", (quotient(parts[1], parts[0]),)))
        match self.scalars.sign(parts[0]):
            case 1:
                return f"{'(' if operator == '<' else '['}{bound},oo)"
            case -1:
                return f"(-oo,{bound}{')' if operator == '<' else ']'}"
        raise Undecided

    def _bounds(self, low: Node, middle: Node, high: Node) -> tuple[int, Node, Node] | None:
        """The sign of the slope, and what the unknown is where the middle reaches the two ends."""
        names = symbols(middle)
        parts = linear(middle, max(names)) if len(names) == 1 else None
        if parts is None or symbols(parts[0]) or symbols(low) | symbols(high):
            return None
        sign = self.scalars.sign(parts[0])
        ends = [quotient(difference(end, parts[1]), parts[0]) for end in (low, high)]
        return (sign, ends[0], ends[1]) if sign else None


def _is_assigned(name: Node, others: list[Node]) -> bool:
    if isinstance(name, Text):
        return True
    if isinstance(name, Group):
        return all(isinstance(other, Group) for other in others)
    assert isinstance(name, Symbol)
    used = frozenset[str]().union(*(symbols(other) for other in others))
    if name.name in _COORDINATES:  # an equation between coordinates is solved for the last of them
        return not any(other >= name.name for other in used & _COORDINATES)
    return name.name not in used


def _between(operators: tuple[str, ...], low: str, high: str) -> str:
    return f"{'(' if operators[0] == '<' else '['}{low},{high}{')' if operators[1] == '<' else ']'}"


def interval(opening: str, *parts: str) -> str:
    """The key of a tuple or an interval: its brackets and the keys between them."""
    *keys, closing = parts
    return f"{opening}{','.join(keys)}{closing}"


def union_of(pieces: Iterable[str]) -> str:
    """The key of a union of sets, in any order."""
    ordered = sorted(set(pieces))
    return ordered[0] if len(ordered) == 1 else f"union({' '.join(ordered)})"
