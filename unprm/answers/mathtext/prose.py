"""What surrounds the mathematics of an answer: boxes, math delimiters, words, and the name of its value (``x = 5``,
``P(A) = 5``, ``(p,q) = (3,2)``, ``x \\in [0,1]``).
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from unprm.answers.mathtext.tokens import CLOSING, OPENING, RELATIONS, is_letters, is_text, render
from unprm.answers.mathtext.words import INTRODUCTIONS, changes_meaning, words_of
from unprm.answers.tables import pattern


class Box(NamedTuple):
    """One ``\\boxed`` of a text: where it starts, where it ends, and where its content is."""

    start: int
    end: int
    inner: slice


def boxes(text: str) -> list[Box]:
    """Every balanced ``\\boxed{…}`` and ``\\fbox{…}``, and ``\\boxed`` before a bare token. Linear."""
    closes: dict[int, int] = {}
    open_braces: list[int] = []
    starts: list[tuple[int, int]] = []
    for found in pattern("box_or_brace").finditer(text):
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
        elif token := pattern("loose_box").match(text, after):
            end = token.end()
            while end in closes:  # the arguments of a command
                end = closes[end] + 1
            found_boxes.append(Box(start, end, slice(after, end)))
    return found_boxes


def unwrap(text: str) -> str:
    """The answer without its box, its math delimiters, and the sentence around it. Boxes with only signs between them
    are a list; in a sentence the last box is the answer, or its only formula, unless a word changes its meaning."""
    text = _without_sentence(_without_boxes(text))
    if whole := pattern("whole").fullmatch(text):
        text = whole[2] or whole[3]
    if vector := pattern("in_angles").fullmatch(text):
        text = f"({vector[1]})"
    text = option_letter(pattern("trailing_backslash").sub("", text))
    stripped = text[lead.end() :] if (lead := pattern("introduction").match(text)) else text
    return stripped.lstrip(" =:,;").rstrip(" .,;:") or text.strip()


def option_letter(text: str) -> str:
    """The letter of "Option A"; any other text unchanged."""
    found = pattern("option_letter").fullmatch(text)
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
    if set(re.findall(r"[A-Za-z0-9]+", pattern("latex_command").sub(" ", " ".join(between)))) - {"and", "or"}:
        return contents[-1]
    return ", ".join(contents) if len(outer) > 1 else contents[0].join(between)


def _without_sentence(text: str) -> str:
    if "$" in text and pattern("only_currency").fullmatch(text):
        return text.replace("$", "\\$")
    pieces = pattern("delimiter").split(text)
    if len(pieces) == 3:
        words = re.findall(r"[A-Za-z]{2,}", pattern("latex_command").sub(" ", pieces[0] + " " + pieces[2]))
        if words and not changes_meaning(words) and not {"and", "or"} & set(words) and pieces[1].strip():
            return pieces[1]
    return " ".join(" ".join(pieces).split()) if len(pieces) > 1 else text


def named(name: str, value: str) -> str:
    """A value with its name. A function of an unknown is the same whatever its name, so it has none."""
    letters = pattern("upright_or_command").sub("", value)
    return f"{name}={value}" if name and value and not pattern("unknown").search(letters) else value


def without_name(canonical: str) -> str:
    """The value that a canonical spelling gives a name; empty if it has no name."""
    found = pattern("named_value").fullmatch(canonical)
    return found[2] if found and not pattern("not_a_name").match(canonical) else ""


def split_name(tokens: list[str]) -> tuple[str, list[str]]:
    """The name before the only relation of an answer, if that is ``=`` or "in", and the tokens after it.
    An announcement ("the answer = 5") is no name, nor is a tuple of names in alphabetical order."""
    if tokens[:1] in (["="], ["\\approx"]):
        return "", tokens[1:]
    if len(tokens) > 1 and is_text(tokens[0]) and set(words_of(tokens[0][6:-1])) <= INTRODUCTIONS:
        return "", tokens[1:]
    if where := _only_relation(tokens):
        name, value = render(tokens[:where]).strip(), tokens[where + 1 :]
        names = name[1:-1].split(",")
        is_tuple = name[0] + name[-1] == "()" and len(names) > 1 and all(map(pattern("value_name").fullmatch, names))
        if is_tuple and names == sorted(names) and "".join(value[:1]) in OPENING:
            return "", value
        if _names_the_unknown(name, tokens[where], value):
            return name, value
    return "", tokens


def without_builder(tokens: list[str]) -> list[str]:
    """The condition in a set builder, ``x > 3`` in ``\\{x \\in R : x > 3\\}``; any other tokens unchanged."""
    start = 4 if tokens[2:4] == ["\\in", "\\mathbb{R}"] else 2
    is_builder = tokens[:1] == ["\\{"] and tokens[-1:] == ["\\}"] and tokens[start : start + 1] in (["|"], [":"])
    return tokens[start + 1 : -1] if is_builder and RELATIONS & set(tokens[start:]) else tokens


def _only_relation(tokens: Sequence[str]) -> int:
    """The index of the only relation outside of brackets, or 0."""
    depth, found = 0, list[int]()
    for at, token in enumerate(tokens):
        depth += (token in OPENING or token == "{") - (token in CLOSING or token == "}")
        if depth == 0 and token in RELATIONS:
            found.append(at)
    return found[0] if len(found) == 1 and tokens[found[0]] in ("=", "\\in") else 0


def _names_the_unknown(name: str, sign: str, right: Sequence[str]) -> bool:
    if not right or pattern("not_a_name").match(name) or not pattern("value_name").fullmatch(name):
        return False
    if sign == "\\in":  # an upper-case letter before "in" is not an unknown number
        return not name[0].isupper()
    letters = {char for token in right if is_letters(token) for char in token}
    if name in "xyz":  # an equation of coordinates is solved for the last one (see `keys`)
        return not any(other in letters for other in "xyz" if other >= name)
    return name not in letters


def with_digits(text: str) -> str:
    """The text with the digits of all scripts written 0 to 9, and wide letters as A to Z."""
    return text if text.isascii() else pattern("like_ascii").sub(_ascii, text)


def _ascii(character: re.Match[str]) -> str:
    value = unicodedata.decimal(character[0], None)
    return unicodedata.normalize("NFKC", character[0]) if value is None else str(value)
