"""Computes the key of a parsed answer: its kind, and the keys of its parts.

Two answers are equal if their keys are. The conventions are listed in docs/answers.md.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.prose import without_name
from unprm.answers.mathtext.quantities import converted, quantity, total, unqualified, with_units
from unprm.answers.mathtext.relations import Relations, interval, list_of, union_of
from unprm.answers.mathtext.scalars import Scalars
from unprm.answers.mathtext.tree import (
    ONE,
    ZERO,
    Call,
    Group,
    Node,
    Relation,
    Symbol,
    Text,
    Unreadable,
    children,
    difference,
    is_label,
    mapped,
    structure,
    substituted,
    symbols,
)
from unprm.answers.mathtext.values import Undecided, digest

MAX_READABLE = 2000  # characters; a longer answer is compared as text
_MAX_KEY = 64
_INTEGER = re.compile(r"-?[1-9][0-9]{0,30}|0")
_UNIT_VECTORS = ("\\hati", "\\hatj", "\\hatk")


class AnswerKey(NamedTuple):
    """The key by which answers are compared.

    key        the same for equal answers
    barer      the keys of the answer without its name, without the words that qualify its unit, without its units, and
               without several of these, as far as they leave its number as written
    otherwise  the key of another number that it may mean, as 3,5 may mean 3.5; else empty
    as_text    whether it could not be compared as mathematics, because of an error or for lack of time
    refused    whether a part was too large or ill-conditioned to compute, so that it is compared as written
    """

    key: str
    barer: tuple[str, ...] = ()
    otherwise: str = ""
    as_text: bool = False
    refused: bool = False


def answer_key(canonical: str) -> AnswerKey:
    """The key of an answer in canonical spelling."""
    if _INTEGER.fullmatch(canonical):  # no need to parse it
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
    barer = (with_units(tree, unqualified), with_units(tree, _only_base))
    keys = [_short(meaning.key(bare)) for bare in barer if bare is not None and bare != tree]
    return AnswerKey(key, tuple(bare for bare in dict.fromkeys(keys) if bare != key), refused=meaning.refused)


def _only_base(spelled: str) -> str:
    """The base of a number, which is no unit that may be left out: 101_2 is not 101."""
    return spelled if spelled.startswith("base") else ""


def text_key(canonical: str) -> AnswerKey:
    """The key of an answer that is compared as text only: no other text has it."""
    return AnswerKey(_short("only " + canonical), as_text=True)


def _short(key: str) -> str:
    return key if len(key) <= _MAX_KEY else digest(key)


class Meaning:
    """Keys of trees. After a key is computed, `refused` says whether a part had to be compared as it is
    written."""

    def __init__(self) -> None:
        self.scalars = Scalars()
        self.relations = Relations(self.scalars, self.key)
        self.refused = False

    def key(self, node: Node) -> str:
        """The key of an answer or a part of one."""
        match node:
            case Text(words):
                return "text " + words
            case Symbol("\\mathbb{R}"):
                return interval("(", "-oo", "oo", ")")
            case Group("" | "\\{", items, _):
                return self._list_key(items, distinct=node.opening != "")
        variants = alternatives(node)
        if len(variants) > 1:
            return list_of(self.key(variant) for variant in variants)
        if isinstance(node, Call) and node.head == "compound" and (sum_of_all := total(node.args)):
            return self.key(sum_of_all)
        try:
            if (found := quantity(node)) is not None:
                return self._quantity_key(*found)
            return self._key(node)
        except (Unreadable, Undecided) as problem:
            self.refused |= isinstance(problem, Undecided)
            return "as written " + structure(node)

    def _quantity_key(self, value: Node, spelled: str) -> str:
        """The key of the value in the base unit of its kind, with that kind."""
        if isinstance(value, Group | Relation | Text) or (isinstance(value, Call) and value.head == "matrix"):
            return f"{self.key(value)} in {spelled}"
        number, kind = converted(value, spelled)
        return f"{self.scalars.key(number)} {kind}"

    def _key(self, node: Node) -> str:
        match node:
            case Group("[", (Group("[", first, "]"), *_) as rows, "]") if all(_is_row(row, len(first)) for row in rows):
                return self.key(Call("matrix", rows))
            case Group(opening, items, closing):
                return interval(opening, *(self.key(item) for item in items), closing)
            case Relation():
                return self.relations.key(node)
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
        if not distinct and (sum_of_all := total(items)) is not None:
            return self.key(sum_of_all)
        if not distinct and len(items) > 1 and all(map(_is_inequality, items)):
            with suppress(Undecided, Unreadable):
                return self.relations.set_key(Call("cap", tuple(items)))
        keys = [self.key(variant) for item in items for variant in alternatives(item)]
        if len(items) > 1 and all(is_label(item) for item in items) and not distinct:
            if all(isinstance(item, Symbol) for item in items):  # A, B, D are the options ABD
                return self.key(Text("".join(map(structure, items))))
            return f"sequence({','.join(keys)})"
        if distinct and len(items) == 1 and keys[0] == list_of([]):
            return f"{{{keys[0]}}}"  # the set of the empty set is not empty
        once = distinct or all(isinstance(item, Group) for item in items)  # a solution listed twice is one
        return list_of(set(keys) if once else keys)

    def _set(self, node: Call) -> str:
        """The key of a union, intersection or difference of sets."""
        if node.head == "cup" and all(isinstance(arg, Group) and arg.opening == "\\{" for arg in node.args):
            return self._list_key([item for arg in node.args for item in children(arg)], distinct=True)
        with suppress(Undecided, Unreadable):
            return self.relations.set_key(node)
        if node.head != "cup":
            raise Unreadable("a set that is not of real numbers")
        return union_of(map(self.key, node.args))


def _is_inequality(node: Node) -> bool:
    return isinstance(node, Relation) and "=" not in node.operators


def _assigned_name(node: Node) -> str:
    """The name in ``x = 5``; else empty."""
    match node:
        case Relation(("=",), (Symbol(name), _)):
            return name
    return ""


def _is_row(node: Node, length: int) -> bool:
    return isinstance(node, Group) and node.opening == "[" and len(node.args) == length > 1


def alternatives(node: Node) -> list[Node]:
    """The values of ±: the node with +, and with - (∓ the other way round); the node itself if it has neither.

    Several ± without ∓ may be meant jointly or independently, so they are left as written."""
    signs = _signs(node)
    if signs.count("pm") + signs.count("mp") == 0 or (len(signs) > 1 and "mp" not in signs):
        return [node]
    return [_with_sign(node, "pm"), _with_sign(node, "mp")]


def _signs(node: Node) -> list[str]:
    signs = [node.head] if isinstance(node, Call) and node.head in ("pm", "mp") else []
    return signs + [sign for child in children(node) for sign in _signs(child)]


def _with_sign(node: Node, plus: str) -> Node:
    if isinstance(node, Call) and node.head in ("pm", "mp"):
        inner = _with_sign(node.args[0], plus)
        return inner if node.head == plus else Call("neg", (inner,))
    return mapped(node, lambda child: _with_sign(child, plus))
