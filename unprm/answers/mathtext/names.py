"""The name of what an answer gives the value of: ``x = 5``, ``P(A) = 5``, ``(p,q) = (3,2)``, ``x \\in [0,1]``."""

import re
from collections.abc import Sequence

from unprm.answers.mathtext.tokens import CLOSING, OPENING, RELATIONS, is_letters, is_text
from unprm.answers.mathtext.words import INTRODUCTIONS, words_of

_NAME = re.compile(
    r"(?:m?\\(?:angle|triangle)|\\(?:overline|vec|hat|bar))?"
    r"\{?(?:[A-Z]+|\|[A-Z]{2,}\||[a-z]|[a-z]{3,}|\\(?:text\{[^{}]*\}|[a-zA-Z]+))\}?"
    r"(?:_(?:\{[0-9A-Za-z]+\}|[0-9A-Za-z]))?(?:'|\^\{-1\})*(?:\((?:[A-Za-z]|[0-9]+)(?:,(?:[A-Za-z]|[0-9]+))*\))?"
)
_NAMED = re.compile(rf"({_NAME.pattern})=(.+)", re.DOTALL)
_NOT_A_NAME = re.compile(r"\\(?:frac|sqrt|sin|cos|tan|sec|csc|cot|log|ln|exp|infty|pi|binom|sum|int|lim)(?![a-z])")
_UPRIGHT = re.compile(r"\\(?:unit|text)\{[^{}]*\}|\\[A-Za-z]+")
_UNKNOWN = re.compile(r"[a-df-hj-zA-Z]")
_COORDINATES = "xyz"


def named(name: str, value: str) -> str:
    """A value with its name. A function of an unknown is the same whatever its name, so it has none."""
    return f"{name}={value}" if name and value and not _UNKNOWN.search(_UPRIGHT.sub("", value)) else value


def without_name(canonical: str) -> str:
    """The value that a canonical spelling gives a name; empty if it has no name."""
    found = _NAMED.fullmatch(canonical)
    return found[2] if found and not _NOT_A_NAME.match(canonical) and "=" not in found[2] else ""


def split_name(tokens: list[str]) -> tuple[str, list[str]]:
    """The name before the only relation of an answer, if that is ``=``, ``\\equiv`` or "in", and the tokens after it.
    An announcement ("the answer = 5") is no name, nor is a tuple of names in alphabetical order."""
    if tokens[:1] in (["="], ["\\approx"]) or (len(tokens) > 1 and _introduces(tokens[0])):
        return "", tokens[1:]
    where = _only_relation(tokens)
    if where:
        name = "".join(tokens[:where]).replace(" ", "")
        if _is_tuple_of_names(name) and tokens[where + 1 : where + 2] and tokens[where + 1] in OPENING:
            return "", tokens[where + 1 :]
        if _names_the_unknown(name, tokens[where], tokens[where + 1 :]):
            return name, tokens[where + 1 :]
    return "", tokens


def without_builder(tokens: list[str]) -> list[str]:
    """The condition in a set builder, ``x > 3`` in ``\\{x \\in R : x > 3\\}``; any other tokens unchanged."""
    start = 4 if tokens[2:4] == ["\\in", "\\mathbb{R}"] else 2
    is_builder = tokens[:1] == ["\\{"] and tokens[-1:] == ["\\}"] and tokens[start : start + 1] in (["|"], [":"])
    return tokens[start + 1 : -1] if is_builder and RELATIONS & set(tokens[start:]) else tokens


def _introduces(token: str) -> bool:
    return is_text(token) and set(words_of(token[6:-1])) <= INTRODUCTIONS


def _only_relation(tokens: Sequence[str]) -> int:
    """The index of the only relation outside of brackets, or 0."""
    depth, found = 0, [0]
    for at, token in enumerate(tokens):
        depth += (token in OPENING or token == "{") - (token in CLOSING or token == "}")
        if depth == 0 and token in RELATIONS:
            found.append(at)
    return found[1] if len(found) == 2 and tokens[found[1]] in ("=", "\\equiv", "\\in") else 0


def _is_tuple_of_names(name: str) -> bool:
    names = name[1:-1].split(",") if name[:1] == "(" and name[-1:] == ")" else []
    return len(names) > 1 and all(map(_NAME.fullmatch, names)) and names == sorted(names)


def _names_the_unknown(name: str, sign: str, right: Sequence[str]) -> bool:
    if not right or _NOT_A_NAME.match(name) or not _NAME.fullmatch(name):
        return False
    if sign == "\\in":  # an upper-case letter before "in" is not an unknown number
        return not name[0].isupper()
    letters = {char for token in right if is_letters(token) for char in token}
    if name in _COORDINATES:  # an equation of coordinates is solved for the last one (see `relations`)
        return not any(other in letters for other in _COORDINATES if other >= name)
    return name not in letters
