"""Values with units in the tree of an answer: ``3 hours`` is a call of "unit" on a value and a unit's spelling,
``1 hour 30 minutes`` a call of "compound" on such calls."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from unprm.answers.mathtext.scalars import identified
from unprm.answers.mathtext.tree import (
    Call,
    Group,
    Node,
    Number,
    Relation,
    Symbol,
    Text,
    Unreadable,
    mapped,
    negative,
    quotient,
)
from unprm.answers.mathtext.units import Unit, spelled_unit, unit, unit_powers
from unprm.answers.mathtext.words import CONTRASTS

_SIGNS = {"%": "percent", "°": "deg"}
_RADIAN = quotient(Number(Fraction(180)), Symbol("\\pi"))  # in degrees


def quantity(node: Node) -> tuple[Node, str] | None:
    """The value and the unit's spelling if the node has one, also after a sign."""
    match node:
        case Call("unit", (value, Text(spelled))):
            return value, spelled
        case Call("%" | "°" as sign, (value,)):
            return value, _SIGNS[sign]
        case Call("neg", (inner,)):
            found = quantity(inner)
            return (negative(found[0]), found[1]) if found else None
    return None


def converted(value: Node, spelled: str) -> tuple[Node, str]:
    """The value in the base unit of its kind, and that kind; radians are given in degrees. Raises `Unreadable`."""
    known, value = unit(spelled), identified(value)
    if known is None:
        raise Unreadable("not a unit")
    if known.kind == "rad":
        return Call("*", (value, _RADIAN)), "deg"
    return (Call("*", (value, Number(known.factor))) if known.factor != 1 else value), known.kind


def total(parts: Sequence[Node]) -> Node | None:
    """``1 hour 30 minutes`` in the base unit of its kind; None if the parts aren't such a sum: literal numbers of
    smaller and smaller units of one kind, each less than one of the unit before."""
    read = [literal for literal in map(_literal, parts) if literal]
    if len(read) < 2 or len(read) < len(parts):
        return None
    for (_, before), (value, current) in pairwise(read):
        if before.kind != current.kind or not 0 <= value * current.factor < before.factor:
            return None
    in_base = sum((value * unit.factor for value, unit in read), Fraction(0))
    return Call("unit", (Number(in_base), Text(read[0][1].kind)))


def _literal(node: Node) -> tuple[Fraction, Unit] | None:
    found = quantity(node)
    known = unit(found[1]) if found else None
    if found and known and isinstance(found[0], Number) and found[0].value >= 0:
        return found[0].value, known
    return None


def unqualified(spelled: str) -> str:
    """A unit without the words that only say which way it counts: meters for meters upward."""
    return spelled_unit({name: power for name, power in unit_powers(spelled).items() if name not in CONTRASTS})


def with_units(node: Node, change: Callable[[str], str]) -> Node | None:
    """The node with each unit's spelling changed, and without those that become empty; None if the number isn't written
    as one, as in ``1 hour 30 minutes``."""
    if (found := quantity(node)) is not None:
        value, spelled = with_units(found[0], change), change(found[1])
        return Call("unit", (value, Text(spelled))) if value and spelled else value
    if isinstance(node, Group) and total(node.args) is not None:
        return None
    match node:
        case Call("compound", _):
            return None
        case Call("neg" | "pm" | "mp" | "cup" | "cap" | "setminus" | ":" | "matrix" | "row") | Group() | Relation():
            parts = [with_units(child, change) for child in node.args]
            rest = iter(part for part in parts if part is not None)
            return mapped(node, lambda _: next(rest)) if None not in parts else None
    return node
