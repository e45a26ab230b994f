"""Computes the key of a parsed answer: its kind, and the keys of its parts.

Two answers are equal if their keys are. The conventions are listed in docs/answers.md. A set of real numbers, such as
the solutions of an inequality, is described by the numbers where it may begin or end, and by which of these, and of the
gaps between them, belong to it: so it has one key however it is written. ``3 hours`` is a call of "unit" on a value and
a unit's spelling, ``1 hour 30 minutes`` a call of "compound" on such calls.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cmp_to_key
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from unprm.answers.mathtext.evaluation import Undecided, digest
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.prose import without_name
from unprm.answers.mathtext.scalars import Scalars, identified, sample_point
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
    is_label,
    mapped,
    negative,
    nodes,
    quotient,
    structure,
    substituted,
    symbols,
)
from unprm.answers.mathtext.units import Unit, spelled_unit, unit, unit_powers
from unprm.answers.mathtext.words import CONTRASTS
from unprm.answers.tables import pattern

MAX_READABLE = 2000  # characters; a longer answer is compared as text
_MAX_KEY = 64
_UNIT_VECTORS = ("\\hati", "\\hatj", "\\hatk")
_REALS, _INFINITE = Symbol("\\mathbb{R}"), Symbol("\\infty")
_MINUS_INFINITE = negative(_INFINITE)
_COORDINATES = frozenset("xyz")
# The signs of the left side minus the right one for which a relation holds.
_HOLDS = {"<": (-1,), "\\leq": (-1, 0), ">": (1,), "\\geq": (0, 1), "=": (0,), "\\neq": (-1, 1)}
_MAX_BARS = 2  # absolute values in an expression whose zeros are computed
_SIGNS = {"%": "percent", "°": "deg"}
_RADIAN = quotient(Number(Fraction(180)), Symbol("\\pi"))  # in degrees


class AnswerKey(NamedTuple):
    """The key by which answers are compared."""

    key: str  # the same for equal answers
    # of the answer without its name, the words that qualify its unit, its units, or several of these, as far as they
    # leave its number as written
    barer: tuple[str, ...] = ()
    otherwise: str = ""  # of another number that it may mean, as 3,5 may mean 3.5
    as_text: bool = False  # not compared as mathematics, because of an error or for lack of time


def answer_key(canonical: str) -> AnswerKey:
    """The key of an answer in canonical spelling."""
    if pattern("integer").fullmatch(canonical):  # no need to parse it
        return AnswerKey(canonical)
    if value := without_name(canonical):
        found = answer_key(value)
        name = canonical.removesuffix(value)
        named = [_short(name + key) for key in (found.key, *found.barer)]
        return found._replace(key=named[0], barer=(*named[1:], found.key, *found.barer))
    try:
        tree = parse(canonical) if len(canonical) <= MAX_READABLE else None
    except Unreadable:
        tree = None
    if tree is None:
        return AnswerKey(_short("text " + canonical))
    meaning = Meaning()
    key = _short(meaning.key(tree))
    # 101_2 is not 101, so a base stays
    changes = (
        _unqualified,
        _without_noun,
        _with_head_noun,
        lambda unit: unit if unit.startswith("base") else "",
    )
    barer = [_with_units(tree, change) for change in changes]
    keys = [_short(meaning.key(bare)) for bare in barer if bare is not None and bare != tree]
    return AnswerKey(key, tuple(bare for bare in dict.fromkeys(keys) if bare != key))


def text_key(canonical: str) -> AnswerKey:
    """The key of an answer that is compared as text only: no other text has it."""
    return AnswerKey(_short("only " + canonical), as_text=True)


def _short(key: str) -> str:
    return key if len(key) <= _MAX_KEY else digest(key)


class Meaning:
    """Keys of trees."""

    def __init__(self) -> None:
        self.scalars = Scalars()

    def key(self, node: Node) -> str:
        """The key of an answer or a part of one."""
        match node:
            case Text(words):
                return "text " + words
            case Symbol("\\mathbb{R}"):
                return _interval("(", ("-oo", "oo"), ")")
            case Group("" | "\\{", items, _):
                return self._list_key(items, distinct=node.opening != "")
        variants = _alternatives(node)
        if len(variants) > 1:
            return _list_of(self.key(variant) for variant in variants)
        if isinstance(node, Call) and node.head == "compound" and (sum_of_all := _total(node.args)):
            return self.key(sum_of_all)
        try:
            if (found := _quantity(node)) is None:
                return self._key(node)
            value, spelled = found
            if isinstance(value, Group | Relation | Text) or (isinstance(value, Call) and value.head == "matrix"):
                return f"{self.key(value)} in {spelled}"
            if (known := unit(spelled)) is None:
                raise Unreadable("not a unit")
            factor = _RADIAN if known.kind == "rad" else Number(known.factor)
            number = Call("*", (identified(value), factor)) if factor != ONE else value
            return f"{self.scalars.key(number)} {known.kind if factor is not _RADIAN else 'deg'}"
        except (Unreadable, Undecided):
            return "as written " + structure(node)

    def _key(self, node: Node) -> str:
        match node:
            case Group("[", rows, "]") if len(_columns(rows)) == 1 and min(_columns(rows)) > 1:
                return self.key(Call("matrix", rows))
            case Group(opening, items, closing):
                return _interval(opening, map(self.key, items), closing)
            case Relation():
                return self._relation(node)
            case Call("matrix", rows) if len(rows) > 1 and all(len(children(row)) == 1 for row in rows):
                return self.key(Group("(", tuple(cell for row in rows for cell in children(row)), ")"))
            case Call("matrix", rows):
                return f"matrix[{';'.join(','.join(map(self.key, children(row))) for row in rows)}]"
            case Call("cup" | "cap" | "setminus"):
                return self._set(node)
        return self._vector(node) or self.scalars.key(node)

    def _vector(self, node: Node) -> str:
        """A sum of multiples of the unit vectors i, j and k is the tuple of its components; empty for others."""
        names = symbols(node)
        if not names or not names <= set(_UNIT_VECTORS):
            return ""
        along = _UNIT_VECTORS[: 3 if "\\hatk" in names else 2]
        components = [substituted(node, {name: ONE if name == one else ZERO for name in along}) for one in along]
        terms = [Call("*", (Symbol(name), part)) for name, part in zip(along, components, strict=True)]
        if not self.scalars.is_zero(difference(node, Call("+", tuple(terms)))):
            return ""
        return self.key(Group("(", tuple(components), ")"))

    def _list_key(self, items: Sequence[Node], *, distinct: bool) -> str:
        """A bare list or a set: in any order, except for words and capital letters. ``x=1, y=2`` is the tuple of the
        values in the order of the names; ``x=1, x=2`` and ``x=1, 2`` are lists."""
        names = [_assigned_name(item) for item in items]
        values = [children(item)[1] if name else item for name, item in zip(names, items, strict=True)]
        if len(items) > 1 and names[0]:
            if all(names) and len(set(names)) == len(names):  # a_3 comes before a_37
                ordered = sorted(zip(names, values, strict=True), key=lambda named: (len(named[0]), named[0]))
                return self.key(Group("(", tuple(value for _, value in ordered), ")"))
            if {*names, ""} == {names[0], ""}:
                items = values
        if not distinct and (sum_of_all := _total(items)) is not None:
            return self.key(sum_of_all)
        if not distinct and len(items) > 1 and all(isinstance(x, Relation) and "=" not in x.operators for x in items):
            with suppress(Undecided, Unreadable):
                return self._set_key(Call("cap", tuple(items)))
        keys = [self.key(variant) for item in items for variant in _alternatives(item)]
        if len(items) > 1 and all(is_label(item) for item in items) and not distinct:
            if all(isinstance(item, Symbol) for item in items):  # A, B, D are the options ABD
                return self.key(Text("".join(map(structure, items))))
            return f"sequence({','.join(keys)})"
        if distinct and len(items) == 1 and keys[0] == _list_of([]):
            return f"{{{keys[0]}}}"  # the set of the empty set is not empty
        once = distinct or all(isinstance(item, Group) for item in items)  # a solution listed twice is one
        return _list_of(set(keys) if once else keys)

    def _set(self, node: Call) -> str:
        if node.head == "cup" and all(isinstance(arg, Group) and arg.opening == "\\{" for arg in node.args):
            return self._list_key([item for arg in node.args for item in children(arg)], distinct=True)
        with suppress(Undecided, Unreadable):
            return self._set_key(node)
        if node.head != "cup":
            raise Unreadable("a set that is not of real numbers")
        return _list_of(set(map(self.key, node.args)), "union")

    def _relation(self, relation: Relation) -> str:
        if set(relation.operators) == {"="}:
            return self._equation(relation.args)
        with suppress(Undecided, Unreadable):
            return self._set_key(relation)
        if len(relation.args) > 2:
            raise Unreadable("a chain of relations")
        operator, (left, right) = relation.operators[0], relation.args
        if operator == "\\approx":
            return self.key(right if isinstance(left, Symbol) else left)
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
        measured = _quantity(result)
        if len(set(map(self.key, (*others, measured[0] if measured else result)))) > 1:
            raise Unreadable("an equation that is false")
        return self.key(result)

    def _implicit(self, zero: Node) -> str:
        """The key of ``zero = 0``: of its solutions if it has one unknown, of an expression if it is linear in its last
        coordinate, else of all equations that are proportional to it."""
        names = symbols(zero)
        with suppress(Undecided, Unreadable):
            if len(names) == 1:
                solutions = [x for x in self._zeros(zero) if not self.scalars.sign(substituted(zero, {max(names): x}))]
                if solutions:
                    return _list_of(set(map(self.key, solutions)))
            elif names <= _COORDINATES:
                return self.key(self._linear_zero(zero, max(names)))
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

    def _set_key(self, node: Node) -> str:
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
                pieces.append(f"{{{low}}}" if low == high else _interval(brackets[0], (low, high), brackets[1]))
        return _list_of(set(pieces), "union") if pieces else _list_of([])

    def _ends(self, node: Node) -> list[Node]:
        """The numbers where a set may begin or end, in any order."""
        match node:
            case Group("(" | "[", (_, _) as ends, ")" | "]"):
                return [end for end in ends if end not in (_INFINITE, _MINUS_INFINITE)]
            case Group("\\{", items, _):
                return list(items)
            case Relation(_, sides):
                finite = [pair for pair in pairwise(sides) if not {_INFINITE, _MINUS_INFINITE} & {*pair}]
                return [zero for pair in finite for zero in self._zeros(difference(*pair))]
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


def _assigned_name(node: Node) -> str:
    """The name in ``x = 5``; else empty."""
    match node:
        case Relation(("=",), (Symbol(name), _)):
            return name
    return ""


def _columns(rows: Sequence[Node]) -> set[int]:
    """The numbers of columns of rows in square brackets; other rows have 0."""
    return {len(row.args) if isinstance(row, Group) and row.opening == "[" else 0 for row in rows}


def _alternatives(node: Node) -> list[Node]:
    """The values of ±: the node with +, and with - (∓ the other way round); the node itself if it has neither.

    Several ± without ∓ may be meant jointly or independently, so they are left as written."""
    signs = [each.head for each in nodes(node) if isinstance(each, Call) and each.head in ("pm", "mp")]
    if not signs or (len(signs) > 1 and "mp" not in signs):
        return [node]
    return [_with_sign(node, "pm"), _with_sign(node, "mp")]


def _with_sign(node: Node, plus: str) -> Node:
    if isinstance(node, Call) and node.head in ("pm", "mp"):
        inner = _with_sign(node.args[0], plus)
        return inner if node.head == plus else Call("neg", (inner,))
    return mapped(node, lambda child: _with_sign(child, plus))


def _with_gaps(ends: Sequence[Node]) -> list[Node]:
    """A number below all ends, then each end with a number above it, which is below the next end."""
    if not ends:
        return [ZERO]
    gaps = [quotient(Call("+", pair), TWO) for pair in pairwise(ends)]
    below, above = difference(ends[0], ONE), Call("+", (ends[-1], ONE))
    return [below, *chain.from_iterable(zip(ends, [*gaps, above], strict=True))]


def _without_bars(node: Node) -> list[Node]:
    """The node with its first absolute value of an unknown replaced by either sign; the node if it has none."""
    bars = (each for each in nodes(node) if isinstance(each, Call) and each.head == "abs" and symbols(each))
    found = next(bars, None)
    return [_replaced(node, found, inner) for inner in (found.args[0], negative(found.args[0]))] if found else [node]


def _replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node == old else mapped(node, lambda child: _replaced(child, old, new))


def _interval(opening: str, keys: Iterable[str], closing: str) -> str:
    return f"{opening}{','.join(keys)}{closing}"


def _list_of(keys: Iterable[str], kind: str = "list") -> str:
    """The key of items in any order; for a single item, its own key."""
    ordered = sorted(keys)
    return ordered[0] if len(ordered) == 1 else f"{kind}({' '.join(ordered)})"


def _quantity(node: Node) -> tuple[Node, str] | None:
    """The value and the unit's spelling if the node has one, also after a sign."""
    match node:
        case Call("unit", (value, Text(spelled))):
            return value, spelled
        case Call("%" | "°" as sign, (value,)):
            return value, _SIGNS[sign]
        case Call("neg", (inner,)):
            found = _quantity(inner)
            return (negative(found[0]), found[1]) if found else None
    return None


def _total(parts: Sequence[Node]) -> Node | None:
    """``1 hour 30 minutes`` in the base unit of its kind; None if the parts aren't such a sum: literal numbers of
    smaller and smaller units of one kind, each less than one of the unit before."""
    read: list[tuple[Fraction, Unit]] = []
    for part in parts:
        match _quantity(part):
            case Number(value), spelled if value >= 0 and (known := unit(spelled)):
                read.append((value, known))
            case _:
                return None
    if len(read) < 2:
        return None
    for (_, before), (value, current) in pairwise(read):
        if before.kind != current.kind or not 0 <= value * current.factor < before.factor:
            return None
    in_base = sum((value * unit.factor for value, unit in read), Fraction(0))
    return Call("unit", (Number(in_base), Text(read[0][1].kind)))


def _unqualified(spelled: str) -> str:
    """A unit without the words that only say which way it counts: meters for meters upward."""
    return spelled_unit({name: power for name, power in unit_powers(spelled).items() if name not in CONTRASTS})


def _without_noun(spelled: str) -> str:
    return spelled_unit({name: power for name, power in unit_powers(spelled).items() if not name.startswith("of(")})


def _with_head_noun(spelled: str) -> str:
    """Balls for red balls."""
    return re.sub(r"of\([\w.]*\.(?=\w+\))", "of(", spelled)


def _with_units(node: Node, change: Callable[[str], str]) -> Node | None:
    """The node with each unit's spelling changed, and without those that become empty; None if the number isn't written
    as one, as in ``1 hour 30 minutes``."""
    if (found := _quantity(node)) is not None:
        value, spelled = _with_units(found[0], change), change(found[1])
        return Call("unit", (value, Text(spelled))) if value and spelled else value
    if isinstance(node, Group) and _total(node.args) is not None:
        return None
    match node:
        case Call("compound", _):
            return None
        case Call("neg" | "pm" | "mp" | "cup" | "cap" | "setminus" | ":" | "matrix" | "row") | Group() | Relation():
            parts = [_with_units(child, change) for child in node.args]
            rest = iter(part for part in parts if part is not None)
            return mapped(node, lambda _: next(rest)) if None not in parts else None
    return node
