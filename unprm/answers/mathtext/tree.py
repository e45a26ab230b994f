"""The nodes of a parsed answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction


class Unreadable(Exception):
    """The text isn't in the grammar, is ambiguous, or nests too deep: it is compared as text."""


@dataclass(frozen=True, slots=True)
class Number:
    """A literal. `digits` is how many significant digits a long decimal was written with, else 0."""

    value: Fraction
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, a constant (``e``, ``i``, ``\\pi``, ``\\infty``), or an unknown quantity such as ``f(2)``
    or ``a_3``."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """Words inside a formula."""

    words: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operation: ``+`` and ``*`` of any number of arguments, ``inv``, ``neg``, ``^``, ``root``, ``sin`` … A
    "matrix" has arguments "row"."""

    head: str
    args: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple, interval or set with its brackets; a bare list has empty ones."""

    opening: str
    args: "tuple[Node, ...]"
    closing: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain ``args[0] operators[0] args[1] …``."""

    operators: tuple[str, ...]
    args: "tuple[Node, ...]"


Node = Number | Symbol | Text | Call | Group | Relation

ZERO, ONE, TWO = (Number(Fraction(value)) for value in range(3))
CONSTANTS = frozenset(["e", "i", "\\pi", "\\infty"])
COMMUTATIVE = frozenset(["+", "*", "cup", "cap", "or", "and"])


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with `change` applied to each of its children."""
    match node:
        case Call(head, args):
            return Call(head, tuple(map(change, args)))
        case Group(opening, args, closing):
            return Group(opening, tuple(map(change, args)), closing)
        case Relation(operators, args):
            return Relation(operators, tuple(map(change, args)))
    return node


def children(node: Node) -> "tuple[Node, ...]":
    return node.args if isinstance(node, Call | Group | Relation) else ()


def nodes(node: Node) -> Iterator[Node]:
    """A node, its children, their children …"""
    waiting = [node]
    while waiting:
        yield (current := waiting.pop())
        waiting += reversed(children(current))


def symbols(node: Node) -> frozenset[str]:
    """The names of the unknowns in a node; the constants are not among them."""
    return frozenset(each.name for each in nodes(node) if isinstance(each, Symbol)) - CONSTANTS


def has_words(node: Node) -> bool:
    return any(isinstance(each, Text) for each in nodes(node))


def is_label(node: Node) -> bool:
    """Whether a node is words or a capital letter."""
    return isinstance(node, Text) or (isinstance(node, Symbol) and len(node.name) == 1 and node.name.isupper())


def substituted(node: Node, values: Mapping[str, Node]) -> Node:
    if isinstance(node, Symbol):
        return values.get(node.name, node)
    return mapped(node, lambda child: substituted(child, values))


def structure(node: Node) -> str:
    """The node as text, the same for any order of the operands of a sum or product."""
    parts = [structure(child) for child in children(node)]
    match node:
        case Number(value, _):
            return str(value)
        case Symbol(name):
            return name
        case Text(words):
            return f"'{words}'"
        case Call(head, _):
            return f"{head}({','.join(sorted(parts) if head in COMMUTATIVE else parts)})"
        case Group(opening, _, closing):
            return f"{opening or '<'}{','.join(parts)}{closing or '>'}"
        case Relation(operators, _):
            return f"rel({' '.join(operators)};{','.join(parts)})"


def joined(head: str, args: "list[Node]") -> Node:
    """A call on several nodes; a single one alone."""
    return Call(head, tuple(args)) if len(args) > 1 else args[0]


def difference(left: Node, right: Node) -> Node:
    return Call("+", (left, negative(right)))


def negative(node: Node) -> Node:
    return Call("neg", (node,))


def quotient(over: Node, under: Node) -> Node:
    return Call("*", (over, Call("inv", (under,))))
