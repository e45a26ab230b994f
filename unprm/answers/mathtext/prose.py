"""What surrounds the mathematics of an answer: boxes, math delimiters, words, and the name of its value (``x = 5``,
``P(A) = 5``, ``(p,q) = (3,2)``, ``x \\in [0,1]``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unprm.answers.mathtext.tokens import CLOSING, OPENING, RELATIONS, is_letters, is_text
from unprm.answers.mathtext.words import INTRODUCTIONS, changes_meaning, words_of

# A second backslash remains of one that was escaped twice (``\\boxed``).
_SCAN = re.compile(r"\\{1,2}(?:boxed|fbox|framebox)(?![A-Za-z])\s*|(?<![A-Za-z\\])boxed(?=\{)|\\.|[{}]", re.DOTALL)
_LOOSE = re.compile(
    r"[+-]?\s?(?:\\?\$)?(?:[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?|\.[0-9]+|\\[A-Za-z]+[0-9]*|[A-Za-z](?![A-Za-z]))"
)
_DELIMITER = re.compile(r"(?<!\\)(?:\$\$?|\\[()\[\]])")
# Dollar signs that all precede an amount, with none left to close a formula: $5, $25,000/year.
_CURRENCY = re.compile(r"(?:[^$\\]|\\[^$()\[\]]|(?<!\\)\$\s?(?=\.?[0-9])(?![0-9.,/^\s]*\$))*", re.DOTALL)
_PRICE = re.compile(r"\$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LEAD = re.compile(rf"(?:(?:{'|'.join(sorted(INTRODUCTIONS))})\b[\s:,=]*)+", re.IGNORECASE)
_TRAILING = re.compile(r"[\s\\]*\\$")
_OPTION = re.compile(r"\s*(?:(?i:answer|option|choice)\s+)?(?i:option|choice)\s*:?\s*(\(?[A-Z]\)?)[\s.]*|([A-J])\)")
_WHOLE = re.compile(r"(['`]|\*\*?)([^'`*]+)\1|\\text\s*\{([^{}]*)\}")  # quoted, bold, upright
_ANGLES = re.compile(r"<([^<>]+,[^<>]+)>")
_LEFT, _RIGHT = " =:,;", " .,;:"


@dataclass(frozen=True, slots=True)
class Box:
    """One ``\\boxed`` of a text: where it starts, where it ends, and where its content is."""

    start: int
    end: int
    inner: slice


def boxes(text: str) -> list[Box]:
    """Every balanced ``\\boxed{…}`` and ``\\fbox{…}``, and ``\\boxed`` before a bare token, by position.
    Linear."""
    closes: dict[int, int] = {}
    stack: list[int] = []
    starts: list[tuple[int, int]] = []
    for found in _SCAN.finditer(text):
        if found[0] == "{":
            stack.append(found.start())
        elif found[0] == "}":
            if stack:
                closes[stack.pop()] = found.start()
        elif len(found[0]) > 2:
            starts.append(found.span())
    candidates = (_box(text, start, after, closes) for start, after in starts)
    return [box for box in candidates if box]


def _box(text: str, start: int, after: int, closes: dict[int, int]) -> Box | None:
    if text.startswith("{", after):
        close = closes.get(after)
        return Box(start, close + 1, slice(after + 1, close)) if close is not None else None
    token = _LOOSE.match(text, after)
    if token is None:
        return None
    end = token.end()
    while text.startswith("{", end) and end in closes:  # the arguments of a command
        end = closes[end] + 1
    return Box(start, end, slice(after, end))


def unwrap(text: str) -> str:
    """The answer without its box, its math delimiters, and the sentence around it.

    Several boxes with only signs between them are a list; in a sentence the last box is the answer. In a
    sentence with exactly one formula, the formula is, unless one of its words changes the meaning ("not",
    "more" …)."""
    text = _without_sentence(_without_boxes(text))
    if whole := _WHOLE.fullmatch(text):
        text = whole[2] or whole[3]
    if vector := _ANGLES.fullmatch(text):
        text = f"({vector[1]})"
    text = option_letter(_TRAILING.sub("", text))
    stripped = text[lead.end() :] if (lead := _LEAD.match(text)) else text
    return stripped.lstrip(_LEFT).rstrip(_RIGHT) or text.strip()


def option_letter(text: str) -> str:
    """The letter of "Option A"; any other text unchanged."""
    found = _OPTION.fullmatch(text)
    return found[1] or found[2] if found else text


def _without_boxes(text: str) -> str:
    if "\\boxed" not in text and "\\fbox" not in text:
        return text
    outer: list[Box] = []
    for box in boxes(text):
        if not outer or box.start >= outer[-1].end:
            outer.append(box)
    if not outer:
        return text
    contents = [text[box.inner] for box in outer]
    if _says_something(_between(text, outer)):
        return contents[-1]
    if len(outer) > 1:
        return ", ".join(contents)
    return text[: outer[0].start] + contents[0] + text[outer[0].end :]


def _between(text: str, outer: Sequence[Box]) -> list[str]:
    starts = [0, *(box.end for box in outer)]
    ends = [*(box.start for box in outer), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _says_something(pieces: Sequence[str]) -> bool:
    words = re.findall(r"[A-Za-z0-9]+", _COMMAND.sub(" ", " ".join(pieces)))
    return any(word not in ("and", "or") for word in words)


def _without_sentence(text: str) -> str:
    if "$" in text and _CURRENCY.fullmatch(text):
        return _PRICE.sub(r"\\$", text)
    pieces = _DELIMITER.split(text)
    if len(pieces) == 1:
        return text
    if len(pieces) == 3:
        words = re.findall(r"[A-Za-z]{2,}", _COMMAND.sub(" ", pieces[0] + " " + pieces[2]))
        if words and not changes_meaning(words) and not {"and", "or"} & set(words) and pieces[1].strip():
            return pieces[1]
    return " ".join(" ".join(pieces).split())


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
