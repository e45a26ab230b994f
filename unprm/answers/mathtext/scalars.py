"""Computes the key of an expression, the same for equal expressions.

A closed expression has the key of its number. One with unknowns has the keys of its values at fixed points:
each unknown gets twelve numbers, which depend only on its name, some integers, some of either sign, some far away,
where kinks as in ``|x-40|`` show; with unknown exponents eight. A missing value, because of the root or logarithm of a
negative number, for example, is part of the key.
"""

import hashlib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from unprm.answers.mathtext.decimals import identified
from unprm.answers.mathtext.evaluation import Evaluator
from unprm.answers.mathtext.tree import (
    Call,
    Node,
    Number,
    Symbol,
    Unreadable,
    children,
    has_words,
    substituted,
    symbols,
)
from unprm.answers.mathtext.values import Undecided, Undefined, Value, number_key

_UNDEFINED = "?"
_LEAST = 3  # points at which an expression must have a value
_MAX_NODES = 2000  # computed for one answer, at all points; of 5,450 real answers one takes more than 700
# (lowest, highest numerator, denominator, with either sign): above 1, below 1, of either sign, integers, and far away.
_RANGES = (
    (28, 89, 23, False), (62, 311, 17, False), (2, 30, 31, False), (3, 36, 37, False), (2, 40, 41, True),
    (5, 95, 29, True), (2, 23, 1, False), (3, 30, 1, False), (1000, 4000, 7, False), (1000, 4000, -11, False),
    (10**6, 4 * 10**6, 7, False), (10**6, 4 * 10**6, -11, False),
)  # fmt: skip
_NEAR = 8
_GROWING = frozenset(["exp", "power"])


class Scalars:
    """Keys of the expressions in one answer, which may cost `_MAX_NODES` in total."""

    def __init__(self) -> None:
        self._left = _MAX_NODES

    def key(self, node: Node) -> str:
        """The key. Raises `Undecided` and `Unreadable`."""
        match node:
            case Symbol("\\infty"):
                return "oo"
            case Call("neg", (Symbol("\\infty"),)):
                return "-oo"
        node = identified(node)
        if has_words(node):
            raise Unreadable("words")
        return self._at_points(node) if symbols(node) else self.closed(node)

    def sign(self, node: Node) -> int:
        """The sign of a closed real expression. Raises `Undecided` if it isn't one."""
        key = self.closed(node)
        if "|" in key or key.startswith("#"):
            raise Undecided
        return 0 if key == "0" else -1 if key.startswith(("-", "~-")) else 1

    def rational(self, node: Node) -> Fraction | None:
        """The value of a closed expression if it is rational."""
        try:
            value = self._value(node)
        except (Undecided, Undefined):
            return None
        return value if isinstance(value, Fraction) else None

    def proportions(self, node: Node, *, signed: bool) -> str:
        """The key of an expression up to a constant factor, up to a positive one if `signed`."""
        values = [substituted(node, point) for point in _points(node)]
        keys = [self._real_key(value) for value in values]
        pivot = next((value for value, key in zip(values, keys, strict=True) if key not in ("0", _UNDEFINED)), None)
        if pivot is None or keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        if signed and self.sign(pivot) < 0:
            pivot = Call("neg", (pivot,))
        return ";".join(
            key if key == _UNDEFINED else self._real_key(Call("*", (value, Call("inv", (pivot,)))))
            for value, key in zip(values, keys, strict=True)
        )

    def closed(self, node: Node) -> str:
        """The key of an expression without unknowns."""
        try:
            return number_key(self._value(node))
        except Undefined:
            raise Undecided from None

    def is_zero(self, node: Node) -> bool:
        """Whether an expression is 0 at all points."""
        return all(self._real_key(substituted(node, point)) == "0" for point in _points(node))

    def _at_points(self, node: Node) -> str:
        keys = [self._real_key(substituted(node, point)) for point in _points(node)]
        if keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        return keys[0] if len(set(keys)) == 1 else ";".join(keys)

    def _real_key(self, node: Node) -> str:
        try:
            return number_key(self._value(node, real=True))
        except (Undefined, Undecided):
            return _UNDEFINED

    def _value(self, node: Node, *, real: bool = False) -> Value:
        evaluator = Evaluator(self._left, real)
        try:
            return evaluator.value(node)
        finally:
            self._left = evaluator.left


def _points(node: Node) -> Iterator[Mapping[str, Node]]:
    """The values of a node's unknowns at each point. Raises `Undecided` if it has kinks and would grow too large where
    they may be."""
    names, heads = symbols(node), frozenset(_heads(node))
    grows = not heads.isdisjoint(_GROWING)
    if grows and "abs" in heads:
        raise Undecided
    for index in range(_NEAR if grows else len(_RANGES)):
        yield {name: _sample(name, index) for name in names}


def sample_point(node: Node) -> Mapping[str, Node]:
    """Values of a node's unknowns."""
    return next(_points(node))


def _heads(node: Node) -> Iterator[str]:
    """The heads of calls on unknowns; "power" if one is in the exponent."""
    if symbols(node):
        if isinstance(node, Call):
            yield "power" if node.head == "^" and symbols(node.args[1]) else node.head
        for child in children(node):
            yield from _heads(child)


@lru_cache(maxsize=4096)
def _sample(name: str, index: int) -> Number:
    """The value of an unknown at a point; integers are even at points of even index, odd at the others."""
    noise = int.from_bytes(hashlib.blake2b(f"{index} {name}".encode(), digest_size=8).digest(), "big")
    low, high, denominator, signed = _RANGES[index]
    numerator = low + noise // 2 % (high - low + 1)
    if denominator == 1:
        numerator = numerator // 2 * 2 + index % 2
    return Number(Fraction(-numerator if signed and noise % 2 else numerator, denominator))
