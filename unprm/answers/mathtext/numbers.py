"""Rewrites the numbers of an answer in one spelling: twenty-five and 25, 1,234.50 and 2469/2, 1 1/2 and \\frac{3}{2},
3 million and 3*10^{6}."""

import re
from collections.abc import Sequence

from unprm.answers.mathtext.tokens import (
    CLOSING,
    OPENING,
    is_number,
)
from unprm.answers.tables import any_of, table

_VALUES: dict[str, int] = table("words")["numbers"]
_FIRST, _ANY = any_of(_VALUES), any_of([*_VALUES, "hundred"])
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:(?<![A-Za-z]\s)|(?<=\band\s)|(?<=\bor\s))"  # not in a sentence: 5 apples in three days
    rf"(?:{_FIRST})(?:(?:[\s-]|\s(?<=hundred\s)and\s)(?:{_ANY}))*(?![A-Za-z])",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[\s-]+(?:and\s+)?")
_BRACKETS = OPENING | CLOSING


def with_figures(text: str) -> str:
    """The text with every number in words in figures; a scale like "million" stays."""
    return _WORDS.sub(lambda found: _figures(found[0]), text)


def _figures(words: str) -> str:
    """The figures of words that are a single number below 10,000; other words unchanged."""
    total, free = 0, 10**3  # what may follow is less than `free`
    for word in _SEPARATOR.split(words.lower()):
        if word == "hundred":
            if not 0 < total < 100:
                return words
            total, free = 100 * total, 100
        elif (value := _VALUES[word]) < free:
            total += value
            free = 10 if value >= 20 and value % 10 == 0 else 0
        else:
            return words
    return str(total)


def join_thousands(tokens: list[str]) -> list[str]:
    """1,234 outside of brackets is a number, and so is 1 234; (1,234) is a pair, and so is 1, 234."""
    joined: list[str] = []
    depth = at = 0
    while at < len(tokens):
        token = tokens[at]
        if is_number(token):
            at, numbers = _run(tokens, at, inside=depth > 0)
            joined += numbers
            continue
        if token in _BRACKETS:
            depth += 1 if token in OPENING else -1
        joined.append(token)
        at += 1
    return joined


def _run(tokens: Sequence[str], at: int, *, inside: bool) -> tuple[int, list[str]]:
    """The end of the run of numbers that starts at `at`, and its tokens: one number, or all that it has."""
    end, separator = _run_end(tokens, at)
    groups = tokens[at:end:2]
    if len(groups) > 1 and _is_thousands(groups):
        padded = any(group[0] == "0" for group in groups[1:])  # (1,050) is not a pair
        if separator == " " or padded or not inside:
            return end, [_trimmed("".join(groups))]
    return end, [_trimmed(token) for token in tokens[at:end]]


def _run_end(tokens: Sequence[str], at: int) -> tuple[int, str]:
    """The end of the numbers from `at` on that are joined only by commas, or only by blanks; and the
    separator."""
    end = at + 1
    separator = tokens[end] if end < len(tokens) else ""
    if separator in (",", " "):
        while end + 1 < len(tokens) and tokens[end] == separator and is_number(tokens[end + 1]):
            end += 2
    return end, separator


def _is_thousands(run: Sequence[str]) -> bool:
    first, *groups = [*run[:-1], run[-1].split(".")[0]]
    return first.isdigit() and len(first) <= 3 and first[0] != "0" and all(len(g) == 3 and g.isdigit() for g in groups)


def _trimmed(token: str) -> str:
    """A literal without superfluous zeros: 007.50 is 7.5."""
    if not is_number(token) or not token.replace(".", "", 1).isdigit():
        return token
    whole, _, decimals = token.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + ("." + decimals if decimals else "")
