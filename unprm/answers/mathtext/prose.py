"""What surrounds the mathematics of an answer: boxes, math delimiters, words, and the name of its value (``x = 5``,
``P(A) = 5``, ``(p,q) = (3,2)``, ``x \\in [0,1]``).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from unprm.answers.mathtext.tokens import CLOSING, OPENING, RELATIONS, is_letters, is_text
from unprm.answers.mathtext.words import INTRODUCTIONS, changes_meaning, words_of
from unprm.answers.tables import any_of

# A second backslash remains of one that was escaped twice (``\\boxed``).
_SCAN = re.compile(r"\\{1,2}(?:boxed|fbox|framebox)(?![A-Za-z])\s*|(?<![A-Za-z\\])boxed(?=\{)|\\.|[{}]", re.DOTALL)
_LOOSE = re.compile(
    r"[+-]?\s?(?:\\?\$)?(?:[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?|\.[0-9]+|\\[A-Za-z]+[0-9]*|[A-Za-z](?![A-Za-z]))"
)
_DELIMITER = re.compile(r"(?<!\\)(?:\$\$?|\\[()\[\]])")
# Dollar signs that all precede an amount, with none left to close a formula: $5, $25,000/year.
_CURRENCY = re.compile(r"(?:[^$\\]|\\[^$()\[\]]|(?<!\\)\$\s?(?=\.?[0-9])(?![0-9.,/^\s]*\$))*", re.DOTALL)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LEAD = re.compile(rf"(?:(?:{any_of(INTRODUCTIONS)})\b[\s:,=]*)+", re.IGNORECASE)
_TRAILING = re.compile(r"[\s\\]*\\$")
_OPTION = re.compile(r"\s*(?:(?i:answer|option|choice)\s+)?(?i:option|choice)\s*:?\s*(\(?[A-Z]\)?)[\s.]*|([A-J])\)")
_WHOLE = re.compile(r"(['`]|\*\*?)([^'`*]+)\1|\\text\s*\{([^{}]*)\}")  # quoted, bold, upright
_ANGLES = re.compile(r"<([^<>]+,[^<>]+)>")


class Box(NamedTuple):
    """One ``\\boxed`` of a text: where it starts, where it ends, and where its content is."""

    start: int
    end: int
    inner: slice


def boxes(text: str) -> list[Box]:
    """Every balanced ``\\boxed{…}`` and ``\\fbox{…}``, and ``\\boxed`` before a bare token, by position.
    Linear."""
    closes: dict[int, int] = {}
    open_braces: list[int] = []
    starts: list[tuple[int, int]] = []
    for found in _SCAN.finditer(text):
        if found[0] == "{":
            open_braces.append(found.start())
        elif found[0] == "}":
            if open_braces:
                closes[open_braces.pop()] = found.start()
        elif len(found[0]) > 2:
            starts.append(found.span())
    found_boxes: list[Box] = []
    for start, after in starts:
        if after in closes:
            found_boxes.append(Box(start, closes[after] + 1, slice(after + 1, closes[after])))
        elif token := _LOOSE.match(text, after):
            end = token.end()
            while end in closes:  # the arguments of a command
                end = closes[end] + 1
            found_boxes.append(Box(start, end, slice(after, end)))
    return found_boxes


def unwrap(text: str) -> str:
    """The answer without its box, its math delimiters, and the sentence around it.

    Several boxes with only signs between them are a list; in a sentence the last box is the answer. In a
    sentence with exactly one formula, the formula is, unless one of its words changes the meaning ("not",
    "more" …)."""
    text = _without_sentence(_without_boxes(text))
    if whole := _WHOLE.fullmatch(text):
        text = whole[2] or whole[3]
    text = option_letter(_TRAILING.sub("", _ANGLES.sub(r"(\1)", text) if _ANGLES.fullmatch(text) else text))
    stripped = text[lead.end() :] if (lead := _LEAD.match(text)) else text
    return stripped.lstrip(" =:,;").rstrip(" .,;:") or text.strip()


def option_letter(text: str) -> str:
    """The letter of "Option A"; any other text unchanged."""
    found = _OPTION.fullmatch(text)
    return found[1] or found[2] if found else text


def _without_boxes(text: str) -> str:
    if "\\boxed" not in text and "\\fbox" not in text:
        return text
    outer: list[Box] = []
    between: list[str] = []
    end = 0
    for box in boxes(text):
        if box.start >= end:
            outer.append(box)
            between.append(text[end : box.start])
            end = box.end
    if not outer:
        return text
    between.append(text[end:])
    contents = [text[box.inner] for box in outer]
    if set(re.findall(r"[A-Za-z0-9]+", _COMMAND.sub(" ", " ".join(between)))) - {"and", "or"}:
        return contents[-1]
    return ", ".join(contents) if len(outer) > 1 else contents[0].join(between)


def _without_sentence(text: str) -> str:
    if "$" in text and _CURRENCY.fullmatch(text):
        return text.replace("$", "\\$")
    pieces = _DELIMITER.split(text)
    if len(pieces) == 3:
        words = re.findall(r"[A-Za-z]{2,}", _COMMAND.sub(" ", pieces[0] + " " + pieces[2]))
        if words and not changes_meaning(words) and not {"and", "or"} & set(words) and pieces[1].strip():
            return pieces[1]
    return " ".join(" ".join(pieces).split()) if len(pieces) > 1 else text


_NAME = re.compile(
    r"(?:m?\\(?:angle|triangle)|\\(?:overline|vec|hat|bar))?"
    r"\{?(?:[A-Z]+|\|[A-Z]{2,}\||[a-z]|[a-z]{3,}|\\(?:text\{[^{}]*\}|[a-zA-Z]+))\}?"
    r"(?:_(?:\{[0-9A-Za-z]+\}|[0-9A-Za-z]))?(?:'|\^\{-1\})*(?:\((?:[A-Za-z]|[0-9]+)(?:,(?:[A-Za-z]|[0-9]+))*\))?"
)
_NAMED = re.compile(rf"({_NAME.pattern})=([^=]+)")
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
    return found[2] if found and not _NOT_A_NAME.match(canonical) else ""


def split_name(tokens: list[str]) -> tuple[str, list[str]]:
    """The name before the only relation of an answer, if that is ``=``, ``\\equiv`` or "in", and the tokens after it.
    An announcement ("the answer = 5") is no name, nor is a tuple of names in alphabetical order."""
    if tokens[:1] in (["="], ["\\approx"]) or (len(tokens) > 1 and _introduces(tokens[0])):
        return "", tokens[1:]
    if where := _only_relation(tokens):
        name, value = "".join(tokens[:where]).replace(" ", ""), tokens[where + 1 :]
        if _is_tuple_of_names(name) and value[:1] and value[0] in OPENING:
            return "", value
        if _names_the_unknown(name, tokens[where], value):
            return name, value
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
    depth, found = 0, list[int]()
    for at, token in enumerate(tokens):
        depth += (token in OPENING or token == "{") - (token in CLOSING or token == "}")
        if depth == 0 and token in RELATIONS:
            found.append(at)
    return found[0] if len(found) == 1 and tokens[found[0]] in ("=", "\\equiv", "\\in") else 0


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
