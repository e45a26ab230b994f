"""How languages other than English announce an answer and write numbers: to add one, add a line to the table."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from unprm.answers.tables import pattern, words_of_languages


@cache
def _nouns() -> frozenset[str]:
    nouns = words_of_languages("answer", joined=False) | words_of_languages("answer", joined=True)
    return frozenset(noun.replace(".", " ") for noun in nouns)


def announcements(text: str) -> Iterator[re.Match[str]]:
    """From each noun that announces an answer to where the answer begins."""
    lower = text.lower()
    return pattern("announcement").finditer(text) if any(noun in lower for noun in _nouns()) else iter(())


def with_digits(text: str) -> str:
    """The text with the digits of all scripts written 0 to 9, and wide letters as A to Z."""
    return text if text.isascii() else pattern("like_ascii").sub(_ascii, text)


def _ascii(character: re.Match[str]) -> str:
    value = unicodedata.decimal(character[0], None)
    return unicodedata.normalize("NFKC", character[0]) if value is None else str(value)


def with_decimal_point(answer: str, text: str) -> str:
    """The answer in a text with a number such as 1.234,5 written 1234.5; in a text of a language with a decimal comma,
    also 3,5 as 3.5 and 12.000 as 12000. Answers with brackets or several numbers are left alone."""
    if number := pattern("grouped_number").fullmatch(answer):
        before, whole, decimals, after = number.groups()
        if decimals or whole.count(".") > 1 or ("." in whole and pattern("has_decimal_comma").search(text)):
            return before + re.sub(r"\D", "", whole) + (f".{decimals}" if decimals else "") + after
    elif (number := pattern("decimal_comma_number").fullmatch(answer)) and pattern("has_decimal_comma").search(text):
        return f"{number[1]}.{number[2]}{number[3]}"
    return answer
