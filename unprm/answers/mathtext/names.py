"""The name of the unknown before an answer: ``x = 5``, ``f(x) = 5``, ``(p,q) = (3,2)``, ``x \\in [0,1]``."""

import re
from collections.abc import Sequence

from unprm.answers.mathtext.tokens import CLOSING, OPENING, RELATIONS, is_letters, is_text
from unprm.answers.mathtext.words import INTRODUCTIONS, words_of

_NAME = re.compile(
    r"(?:m?\\(?:angle|triangle)|\\(?:overline|vec|hat|bar))?"
    r"\{?(?:[A-Z]+|[a-z]|[a-z]{3,}|\\(?:text\{[^{}]*\}|[a-zA-Z]+))\}?"
    r"(?:_(?:\{[0-9A-Za-z]+\}|[0-9A-Za-z]))?(?:'|\^\{-1\})*(?:\((?:[A-Za-z]|[0-9]+)(?:,(?:[A-Za-z]|[0-9]+))*\))?"
)
_TUPLE_OF_NAMES = re.compile(rf"\({_NAME.pattern}(?:,{_NAME.pattern})+\)")
_NOT_A_NAME = re.compile(r"\\(?:frac|sqrt|sin|cos|tan|sec|csc|cot|log|ln|exp|infty|pi|binom|sum|int|lim)(?![a-z])")
_COORDINATES = "xyz"


def strip_name(tokens: list[str]) -> list[str]:
    """The tokens of an answer without the name before its only relation, if that is ``=`` or "in"."""
    if tokens[:1] in (["="], ["\\approx"]) or (len(tokens) > 1 and _introduces(tokens[0])):
        return tokens[1:]
    where = _only_relation(tokens)
    if where > 0 and _names_the_unknown(tokens[:where], tokens[where], tokens[where + 1 :]):
        return tokens[where + 1 :]
    return tokens


def _introduces(token: str) -> bool:
    return is_text(token) and set(words_of(token[6:-1])) <= INTRODUCTIONS


def _only_relation(tokens: Sequence[str]) -> int:
    """The index of the only relation outside of brackets, or 0."""
    depth, found = 0, [0]
    for at, token in enumerate(tokens):
        depth += (token in OPENING or token == "{") - (token in CLOSING or token == "}")
        if depth == 0 and token in RELATIONS:
            found.append(at)
    return found[1] if len(found) == 2 and tokens[found[1]] in ("=", "\\in") else 0


def _names_the_unknown(left: Sequence[str], sign: str, right: Sequence[str]) -> bool:
    name = "".join(left).replace(" ", "")
    if not right or _NOT_A_NAME.match(name):
        return False
    if sign == "\\in":  # an upper-case letter before "in" is not an unknown number
        return _NAME.fullmatch(name) is not None and not name[0].isupper()
    if _TUPLE_OF_NAMES.fullmatch(name):
        return right[0] in OPENING
    if name.startswith("|") and name.endswith("|") and name[1:-1].isalpha():
        return True
    letters = {char for token in right if is_letters(token) for char in token}
    if name in _COORDINATES:  # an equation of coordinates is solved for the last one (see `relations`)
        return not any(other in letters for other in _COORDINATES if other >= name)
    return name not in letters and _NAME.fullmatch(name) is not None
