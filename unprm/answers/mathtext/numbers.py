"""Numbers in words and with separators, in figures: twenty-five, 1,234.50, 007."""

import re

from unprm.answers.mathtext.tokens import CLOSING, OPENING, is_number
from unprm.answers.tables import any_of, table

_VALUES: dict[str, int] = table("words")["numbers"]
_FIRST, _ANY = any_of(_VALUES), any_of([*_VALUES, "hundred"])
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:(?<![A-Za-z]\s)|(?<=\band\s)|(?<=\bor\s))"  # not in a sentence: 5 apples in three days
    rf"(?:{_FIRST})(?:(?:[\s-]|\s(?<=hundred\s)and\s)(?:{_ANY}))*(?![A-Za-z])",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[\s-]+(?:and\s+)?")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")


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
    """1,234 outside of brackets is a number, and so is 1 234; (1,234) is a pair, and so is 1, 234; (1,050) is none."""
    joined: list[str] = []
    depth = at = 0
    while at < len(tokens):
        end = at + 1
        if is_number(tokens[at]):
            separator = tokens[end] if tokens[end : end + 1] in ([","], [" "]) else ""
            while separator and tokens[end : end + 1] == [separator] and is_number("".join(tokens[end + 1 : end + 2])):
                end += 2
            groups = tokens[at:end:2]
            padded = any(group[0] == "0" for group in groups[1:])
            if _THOUSANDS.fullmatch(",".join(groups)) and (separator == " " or padded or not depth):
                joined.append(_trimmed("".join(groups)))
            else:
                joined += map(_trimmed, tokens[at:end])
        else:
            depth += (tokens[at] in OPENING) - (tokens[at] in CLOSING)
            joined.append(tokens[at])
        at = end
    return joined


def _trimmed(token: str) -> str:
    """A literal without superfluous zeros: 007.50 is 7.5."""
    if not is_number(token) or not token.replace(".", "", 1).isdigit():
        return token
    whole, _, decimals = token.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + ("." + decimals if decimals else "")
