"""What surrounds the mathematics of an answer: boxes, math delimiters, words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unprm.answers.mathtext.words import INTRODUCTIONS, changes_meaning

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
