"""An expression to its key, the same for equal expressions.

A closed expression has the key of its number. One with unknowns has the keys of its values at fixed points:
each unknown is given, by its name alone, eight numbers, some integers, some of either sign. Where there is no
value, because of the root or logarithm of a negative number, say, that is part of the key.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from unprm.mathtext.arithmetic import Arithmetic
from unprm.mathtext.decimals import identified
from unprm.mathtext.exact import NotExact, TooBig, Undefined
from unprm.mathtext.keys import Absorbed, exact_key
from unprm.mathtext.tree import Call, Node, Number, Symbol, Unreadable, has_words, substituted, symbols

_UNDEFINED = "?"
_LEAST = 3  # points at which an expression must have a value
# (lowest, highest numerator, denominator, with either sign): above 1, below 1, of either sign, and integers.
_RANGES = (
    (28, 89, 23, False), (62, 311, 17, False), (2, 30, 31, False), (3, 36, 37, False), (2, 40, 41, True),
    (5, 95, 29, True), (2, 23, 1, False), (3, 30, 1, False),
)  # fmt: skip


class NeedsNumerics(Exception):
    """The key needs high-precision arithmetic, which this `Scalars` was made without."""


class Undecided(Exception):
    """No key can be computed within the bounds: the expression is compared by its structure."""


NumericKey = Callable[[Node, bool], str]


class Scalars:
    """Keys of expressions. With a `numeric` key (`numeric.numeric_key`) those of all, without it only those
    that are exact and cheap. Both give the same key where both give one."""

    def __init__(self, numeric: NumericKey | None = None) -> None:
        self.numeric = numeric
        self.exact = Arithmetic(bits=200_000, terms=24, loop=2000) if numeric else Arithmetic()
        self.real = replace(self.exact, real=True)

    def key(self, node: Node) -> str:
        """The key. Raises `NeedsNumerics`, `Undecided`, `Unreadable`."""
        match node:
            case Symbol("\\infty"):
                return "oo"
            case Call("neg", (Symbol("\\infty"),)):
                return "-oo"
        node = identified(node)
        if has_words(node):
            raise Unreadable("words")
        names = symbols(node)
        return self._at_points(node, names) if names else self.closed(node)

    def sign(self, node: Node) -> int:
        """The sign of a closed real expression. Raises `Undecided` if it isn't one."""
        key = self.closed(node)
        if "|" in key or key.startswith("#"):
            raise Undecided
        return 0 if key == "0" else -1 if key.startswith(("-", "~-")) else 1

    def rational(self, node: Node) -> Fraction | None:
        """The value of a closed expression if it is rational and cheap to compute."""
        try:
            return self.exact.value(node).rational()
        except (NotExact, TooBig, Undefined):
            return None

    def proportions(self, node: Node, *, signed: bool) -> str:
        """The key of an expression up to a constant factor, up to a positive one if `signed`."""
        names = symbols(node)
        if not self.numeric:
            raise NeedsNumerics
        values = [substituted(node, point) for point in _points(names)]
        keys = [self._real(value) for value in values]
        pivot = next((value for value, key in zip(values, keys, strict=True) if key not in ("0", _UNDEFINED)), None)
        if pivot is None or keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        if signed and self.sign(pivot) < 0:
            pivot = Call("neg", (pivot,))
        return ";".join(
            key if key == _UNDEFINED else self._real(Call("*", (value, Call("inv", (pivot,)))))
            for value, key in zip(values, keys, strict=True)
        )

    def closed(self, node: Node) -> str:
        """The key of an expression without unknowns."""
        try:
            return self._closed(node, real=False)
        except Undefined:
            raise Undecided from None

    def _at_points(self, node: Node, names: frozenset[str]) -> str:
        if not self.numeric:
            raise NeedsNumerics
        keys = [self._real(substituted(node, point)) for point in _points(names)]
        if keys.count(_UNDEFINED) > len(keys) - _LEAST:
            raise Undecided
        return keys[0] if len(set(keys)) == 1 else ";".join(keys)

    def _real(self, node: Node) -> str:
        try:
            return self._closed(node, real=True)
        except (Undefined, Undecided):
            return _UNDEFINED

    def _closed(self, node: Node, *, real: bool) -> str:
        try:
            return exact_key((self.real if real else self.exact).value(node))
        except NotExact:
            exact = False
        except (TooBig, Absorbed):
            exact = True
        if self.numeric is None:  # the bounds are smaller here, so this is no verdict yet
            raise NeedsNumerics
        if exact:
            raise Undecided
        try:
            return self.numeric(node, real)
        except (TooBig, Absorbed, NotExact):
            raise Undecided from None


def _points(names: frozenset[str]) -> Iterator[Mapping[str, Node]]:
    for index in range(len(_RANGES)):
        yield {name: _sample(name, index) for name in names}


@lru_cache(maxsize=4096)
def _sample(name: str, index: int) -> Number:
    """The number that an unknown stands for at a point; even at the last but one, odd at the last."""
    noise = int.from_bytes(hashlib.blake2b(f"{index} {name}".encode(), digest_size=8).digest(), "big")
    low, high, denominator, signed = _RANGES[index]
    numerator = low + noise // 2 % (high - low + 1)
    if denominator == 1:
        numerator = numerator // 2 * 2 + index % 2
    return Number(Fraction(-numerator if signed and noise % 2 else numerator, denominator))
