"""Computes the keys of equations and inequalities."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction

from unprm.answers.mathtext.linear import degree, difference, linear, negative, quotient
from unprm.answers.mathtext.quantities import quantity
from unprm.answers.mathtext.scalars import Scalars
from unprm.answers.mathtext.spans import INFINITE, MINUS_INFINITE, Span, merged, outside, ray, spans_of
from unprm.answers.mathtext.tree import (
    Call,
    Group,
    Matrix,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Unreadable,
    has_words,
    structure,
    substituted,
    symbols,
)
from unprm.answers.mathtext.values import Undecided

_MIRRORED = {">": "<", "\\geq": "\\leq", "<": ">", "\\leq": "\\geq"}
_COORDINATES = frozenset("xyz")


def is_name(node: Node) -> bool:
    """Whether a node only names something: ``x``, ``f(2)``, ``area``."""
    return isinstance(node, Text) or (isinstance(node, Symbol) and node.name not in ("\\pi", "\\infty"))


class Relations:
    """Keys of relations; `key` computes the key of any node."""

    def __init__(self, scalars: Scalars, key: Callable[[Node], str]) -> None:
        self.scalars = scalars
        self.node_key = key

    def key(self, relation: Relation) -> str:
        """The key. Raises `Unreadable` and `Undecided` for relations that must be compared as written."""
        operators = set(relation.operators)
        if operators == {"="}:
            return self._equation(list(relation.sides))
        if operators <= {"<", "\\leq"} or operators <= {">", "\\geq"}:
            return self._inequality(relation)
        if len(relation.sides) > 2:
            raise Unreadable("a chain of different relations")
        return self._other(relation.operators[0], *relation.sides)

    def _other(self, operator: str, left: Node, right: Node) -> str:
        if operator == "\\approx":
            return self.node_key(right if is_name(left) else left)
        if operator == "\\neq":
            solved = self._solved(difference(left, right))
            if solved is None:
                return f"neq {self.scalars.proportions(difference(left, right), signed=False)}"
            return self.reals_without([Span(solved, solved, True, True)])
        raise Unreadable(operator)

    def reals_without(self, spans: Sequence[Span]) -> str:
        """The key of all real numbers except some, as a union of intervals. Raises `Undecided` if those can't be
        ordered."""
        return self.set_key(list(outside(merged(spans, self._compared))))

    def _compared(self, left: Node, right: Node) -> int:
        return self.scalars.sign(difference(left, right))

    def set_key(self, spans: Sequence[Span]) -> str:
        """The key of a set of real numbers; spans whose ends can't be ordered are left unchanged."""
        with suppress(Undecided, Unreadable):
            spans = merged(spans, self._compared)
        return union_of(map(self._span_key, spans))

    def _span_key(self, span: Span) -> str:
        low, high = self.node_key(span.low), self.node_key(span.high)
        if low == high and span.from_low and span.to_high:
            return f"{{{low}}}"
        return interval("[" if span.from_low else "(", low, high, "]" if span.to_high else ")")

    def spans(self, node: Node) -> list[Span] | None:
        """The set of real numbers that a node denotes, or that solves it; None if that can't be determined."""
        if not isinstance(node, Relation):
            return spans_of(node)
        operators = set(node.operators)
        if operators <= {"<", "\\leq"}:
            return self._solution(node.operators, node.sides)
        if operators <= {">", "\\geq"}:
            return self._solution(tuple(_MIRRORED[operator] for operator in reversed(node.operators)), node.sides[::-1])
        return None

    def _equation(self, sides: list[Node]) -> str:
        """A name = a value is the value; an equation that is linear in its last coordinate, or its only
        unknown, is solved for it; any other has a key up to a constant factor."""
        named = False
        while len(sides) > 1 and is_name(sides[0]) and _is_assigned(sides[0], sides[1:]):
            named = True
            sides = sides[1:]
        if len(sides) > 1 and not any(map(symbols, sides)) and (calculated := self._calculation(sides)):
            return calculated
        if len(sides) == 2 and is_name(sides[1]) and not symbols(sides[0]):
            sides = sides[:1]
        match sides:
            case [Group("(", names, ")"), Group("(", values, ")")] if len(names) == len(values):
                ordered = sorted(zip(map(structure, names), values, strict=True), key=lambda named: named[0])
                return self.node_key(Group("(", tuple(value for _, value in ordered), ")"))
            case [Call("abs", (inner,)), end] if symbols(inner) and not symbols(end) and self.scalars.sign(end) >= 0:
                return list_of({self._implicit(difference(inner, bound)) for bound in (end, negative(end))})
            case [left, right]:
                return self._implicit(difference(left, right))
        keys = [self.node_key(side) for side in sides]
        if named or len(set(keys)) == 1:
            return keys[-1]
        raise Unreadable("a chain of equations")

    def _calculation(self, sides: Sequence[Node]) -> str:
        """The key of the result of ``2+3 = 5``; empty if the sides aren't all equal."""
        result = quantity(sides[-1])
        values = [*sides[:-1], result[0] if result else sides[-1]]
        if any(isinstance(value, Group | Matrix | Relation) or has_words(value) for value in values):
            return ""
        return self.node_key(sides[-1]) if len(set(map(self.node_key, values))) == 1 else ""

    def _implicit(self, zero: Node) -> str:
        solved = self._solved(zero)
        if solved is not None:
            return self.node_key(solved)
        if not symbols(zero):
            raise Unreadable("an equation that is false")
        roots = self._roots(zero)
        return (
            list_of(map(self.node_key, roots)) if roots else f"equation {self.scalars.proportions(zero, signed=False)}"
        )

    def _roots(self, zero: Node) -> list[Node]:
        """The real roots of a quadratic equation in one unknown with rational coefficients."""
        names = symbols(zero)
        if len(names) != 1 or degree(zero, name := max(names)) != 2:
            return []
        at = [self.scalars.rational(substituted(zero, {name: Number(Fraction(x))})) for x in (-1, 0, 1)]
        if None in at:
            return []
        below, c, above = (value or Fraction(0) for value in at)
        a, b = (above + below) / 2 - c, (above - below) / 2
        discriminant = b * b - 4 * a * c
        if not a or discriminant < 0:
            return []
        root = Call("root", (Number(discriminant / (4 * a * a)), Number(Fraction(2))))
        middle = Number(-b / (2 * a))
        return [Call("+", (middle, root)), Call("+", (middle, negative(root)))] if discriminant else [middle]

    def _solved(self, zero: Node) -> Node | None:
        """The value of the unknown for which a linear expression in it is 0."""
        names = symbols(zero)
        if not names or (len(names) > 1 and not names <= _COORDINATES):
            return None
        parts = linear(zero, max(names))
        if parts is None or symbols(parts[0]) or not self.scalars.sign(parts[0]):
            return None
        return Call("neg", (quotient(parts[1], parts[0]),))

    def _inequality(self, relation: Relation) -> str:
        """The set of the numbers that solve it, if that can be determined."""
        spans = self.spans(relation)
        if spans is not None:
            return self.set_key(spans)
        operators, sides = relation.operators, relation.sides
        if operators[0] in (">", "\\geq"):
            operators, sides = tuple(_MIRRORED[operator] for operator in reversed(operators)), sides[::-1]
        if len(sides) == 2:
            return f"positive {operators[0]} {self.scalars.proportions(difference(sides[1], sides[0]), signed=True)}"
        return f"chain {' '.join(operators)} {' '.join(self.node_key(side) for side in sides)}"

    def overlap(self, relations: Sequence[Node]) -> Span | None:
        """The numbers that solve two inequalities in one unknown, one of which bounds them from below and one from
        above; None if there are no such numbers."""
        if len(relations) != 2 or symbols(relations[0]) != symbols(relations[1]):
            return None
        with suppress(Undecided, Unreadable):
            spans = [self.spans(relation) for relation in relations if isinstance(relation, Relation)]
            rays = [span for found in spans if found and len(found) == 1 for span in found]
            up = [ray for ray in rays if ray.high == INFINITE]
            down = [ray for ray in rays if ray.low == MINUS_INFINITE]
            if len(up) == len(down) == 1 and self._compared(up[0].low, down[0].high) < 0:
                return Span(up[0].low, down[0].high, up[0].from_low, down[0].to_high)
        return None

    def _solution(self, operators: tuple[str, ...], sides: tuple[Node, ...]) -> list[Span] | None:
        """The numbers that solve a chain of ``<`` and ``\\leq`` that is linear in its only unknown."""
        closed = tuple(operator == "\\leq" for operator in operators)
        match sides:
            case (Call("abs", (inner,)), bound) if not symbols(bound) and self.scalars.sign(bound) > 0:
                return self._between(closed * 2, negative(bound), inner, bound)
            case (bound, Call("abs", (inner,))) if not symbols(bound) and self.scalars.sign(bound) > 0:
                sides_of = [self._half_line(closed[0], difference(side, bound)) for side in (inner, negative(inner))]
                return [span for span in sides_of if span] if all(sides_of) else None
            case (left, right):
                span = self._half_line(closed[0], difference(right, left))
                return [span] if span else None
            case (low, middle, high):
                return self._between(closed, low, middle, high)
        return None

    def _half_line(self, closed: bool, positive: Node) -> Span | None:
        """Where an expression that is linear in its only unknown is positive, or 0 if `closed`."""
        names = symbols(positive)
        parts = linear(positive, max(names)) if len(names) == 1 else None
        if parts is None or symbols(parts[0]):
            return None
        sign = self.scalars.sign(parts[0])
        if not sign:
            raise Undecided
        return ray(Call("neg", (quotient(parts[1], parts[0]),)), upwards=sign > 0, closed=closed)

    def _between(self, closed: tuple[bool, ...], low: Node, middle: Node, high: Node) -> list[Span] | None:
        """The numbers for which a name, or an expression linear in it, is between two bounds."""
        if symbols(low) | symbols(high):
            return None
        if is_name(middle):
            return [Span(low, high, *closed)]
        names = symbols(middle)
        parts = linear(middle, max(names)) if len(names) == 1 else None
        sign = self.scalars.sign(parts[0]) if parts and not symbols(parts[0]) else 0
        if parts is None or not sign:
            return None
        bottom, top = (quotient(difference(end, parts[1]), parts[0]) for end in (low, high))
        return [Span(bottom, top, *closed) if sign > 0 else Span(top, bottom, *closed[::-1])]


def _is_assigned(name: Node, others: list[Node]) -> bool:
    if isinstance(name, Text):
        return True
    assert isinstance(name, Symbol)
    used = frozenset[str]().union(*(symbols(other) for other in others))
    if name.name in _COORDINATES:  # an equation between coordinates is solved for the last of them
        return not any(other >= name.name for other in used & _COORDINATES)
    return name.name not in used


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
