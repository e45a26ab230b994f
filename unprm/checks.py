"""Checks the arithmetic that a step writes out, without a model: ``3 * 4 = 12``, ``5 + 2 = 7 = 14 / 2``, 20% * 5 = 1.

Only what is surely a calculation is read: numbers, signs and brackets, with nothing but units among them, that begin
and end at a sentence's, formula's or equation's edge. So most steps are not checked, and a step whose equations all
hold may still be wrong.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from typing import NamedTuple

from unprm.answers.mathtext.evaluation import Evaluator, Undecided, Undefined
from unprm.answers.mathtext.grammar import parse
from unprm.answers.mathtext.tree import Unreadable

_MOST = 100  # equations of a step that are checked
_LONGEST_STEP = 20_000  # characters; a longer one is not read
_LONGEST = 200  # characters of a side; a longer one is not read
_NODES = 200  # of a side's tree
_REWRITES = (
    # without a number before it, with which it would be a mixed number
    (re.compile(r"(?<![0-9])(?<![0-9] )\\[dt]?frac ?\{([^{}]{1,99})\} ?\{([^{}]{1,99})\}"), r"((\1)/(\2))"),
    (re.compile(r"\^\{([^{}]{1,99})\}"), r"^(\1)"),
    (re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]{0,99})\}"), r" \1 "),
)
_PIECE = re.compile(
    r"(?P<n>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"|(?P<p>\\?%)"
    r"|(?P<o>\\(?:times|cdot|div)(?![a-z])|[-+/×÷·⋅−–]|(?<!\*)\*(?!\*)|(?<=[0-9)] )x(?= [0-9(])|(?<=[0-9])x(?=[0-9]))"
    r"|(?P<c>\^)"
    r"|(?P<l>(?:\\left ?)?\()"
    r"|(?P<r>(?:\\right ?)?\))"
    r"|(?P<e>=)"
    r"|(?P<d>\\[()\[\]]|\$\$)"
    r"|(?P<blank>[^\S\n]+|\*\*+|\\[,;:! ]|\\?\$|[€£&])"
    r"|(?P<v>(?<=[0-9)])[^\W\d_]+|[^\W\d_](?![^\W\d_]))"
    r"|(?P<w>[^\W\d_]+(?:[-'’/][^\W\d_]+)*)"
    r"|(?P<x>.)",
    re.DOTALL,
)
"""A number, percent sign, operator, bracket, equals sign or delimiter of a formula; a variable: letters that touch a
number, or a single one; a word. `_CHAIN` is matched against the initials of these names."""
# atomic groups, since before Python 3.11.5 a possessive quantifier of a group that backtracks matches less
_TERM = "(?>l{0,20})(?>(?:(?<=l)o)?)n(?>p?)(?>r{0,20})"
_SIDE = rf"(?>o?){_TERM}(?>(?:(?>(?>w*)o(?>o?)|c(?>o?)|(?=l)){_TERM})*)(?>w*)"
_CHAIN = re.compile(rf"{_SIDE}(?>(?:(?>d*)e(?>d*){_SIDE})*)")
_EDGE = re.compile(r"[.,;=\n]|:(?![0-9])|\\[()\[\]]|\$\$")
_TWO_QUOTIENTS = re.compile(r"/[0-9.]+/")  # 14/1/4 may divide by a quarter
_NUMBER = re.compile(r"[-(]*[0-9]*(?:\.([0-9]*))?\)*(%)?")
_PERCENT = re.compile(r"([0-9.]+)%")
_OPERATORS = dict.fromkeys(("×", "·", "⋅", "x", "\\times", "\\cdot"), "*") | dict.fromkeys(("÷", "\\div"), "/")
_OPERATORS |= dict.fromkeys("−–", "-")


class _Side(NamedTuple):
    """A side in the grammar's notation, and the last word among its numbers."""

    text: str
    unit: str


def check(step: str) -> float | None:
    """A step's score: 0.0 if one of its equations is false, 1.0 if all hold, None if it has none."""
    if "=" not in step or len(step) > _LONGEST_STEP:
        return None
    holds = list(islice(equations(step), _MOST))
    return float(all(holds)) if holds else None


def equations(step: str) -> Iterator[bool]:
    """Whether each equation of a step holds; of a chain ``a = b = c`` each pair. A rounded or truncated number equals
    what it was made of. Linear in the length."""
    for pattern, plain in _REWRITES:
        step = pattern.sub(plain, step)
    pieces = [piece for piece in _PIECE.finditer(step) if piece.lastgroup != "blank"]
    kinds = "".join(str(piece.lastgroup) for piece in pieces)
    for chain in _CHAIN.finditer(kinds):
        start, end = chain.span()
        sides: list[_Side | None] = [*_sides(pieces[start:end])]
        if (start and kinds[start - 1] != "w" and not _EDGE.match(step, pieces[start - 1].start())) or (
            kinds[start] == "o" and pieces[start][0] not in "-−–"
        ):
            sides[0] = None
        if end < len(pieces) and not _EDGE.match(step, pieces[end].start()):
            sides[-1] = None
        for left, right in pairwise(sides):
            if left and right and (holds := _holds(left, right)) is not None:
                yield holds


def _sides(chain: Sequence[re.Match[str]]) -> Iterator[_Side]:
    text, unit = "", ""
    for piece in chain:
        match piece.lastgroup:
            case "e":
                yield _Side(text, unit)
                text, unit = "", ""
            case "w":
                unit = piece[0].lower().removesuffix("s")
            case "n":
                text += piece[0].replace(",", "")
            case "p":
                text += "%"
            case "l" | "r":
                text += piece[0][-1]
            case "o" | "c":
                text += _OPERATORS.get(piece[0], piece[0])
    yield _Side(text, unit)


def _holds(left: _Side, right: _Side) -> bool | None:
    """None where the left side calculates nothing (``4 hours = 4 * 60 minutes``), or their units differ."""
    if _NUMBER.fullmatch(left.text) or (left.unit and right.unit and left.unit != right.unit):
        return None
    this, other = _value(left.text), _value(right.text)
    if this is None or other is None:
        return None
    close = abs(this - other) < max(_last_place(left.text), _last_place(right.text))
    as_percent = right.text.endswith("%") and "%" not in left.text and this == 100 * other
    rounded = close and not this.denominator == other.denominator == 1
    return this == other or as_percent or rounded


def _value(side: str) -> Fraction | None:
    """The value of a side if it is rational and soon computed."""
    if len(side) > _LONGEST or _TWO_QUOTIENTS.search(side):
        return None
    try:
        # after a sum's sign, 18-6 is no range
        value = Evaluator(_NODES).value(parse("0+" + _PERCENT.sub(r"(\1/100)", side)))
    except (Unreadable, Undecided, Undefined):
        return None
    return value if isinstance(value, Fraction) else None


def _last_place(side: str) -> Fraction:
    """One unit in the last place of a number, 0 of a calculation."""
    number = _NUMBER.fullmatch(side)
    return Fraction(1, 10 ** (len(number[1] or "") + 2 * bool(number[2]))) if number else Fraction(0)
