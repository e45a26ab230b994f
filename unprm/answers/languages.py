"""How languages other than English announce an answer and write numbers: to add one, add a line to the table."""

import re
import unicodedata
from collections.abc import Iterator

from unprm.answers.tables import any_of, table


def _all(what: str, *, joined: bool) -> frozenset[str]:
    """The words for something in the languages in which no blank need precede them, or in all others."""
    languages = [each for each in table("languages").values() if each.get("joined", False) == joined]
    return frozenset(word for language in languages for word in language.get(what, "").split())


QUESTIONS = any_of(_all("question", joined=False) | _all("question", joined=True))
"""A regular expression: what announces a question, before a colon."""
_NOUNS, _JOINED_NOUNS = _all("answer", joined=False), _all("answer", joined=True)
_VERBS, _JOINED_VERBS = _all("is", joined=False), _all("is", joined=True)
# A noun, and at once a value; or some words, and a colon, dash or verb.
_ANNOUNCEMENT = re.compile(
    rf"""
    (?: (?<!\w)(?:{any_of(_NOUNS)}) | {any_of(_JOINED_NOUNS)} )
    (?: (?=\s?[*_("]*[-$\\]*(?:[0-9]|[A-J]\b))
      | [^\n.。:：!?=0-9$\\]{{0,40}}?
        (?: (?<=[:：은]) | \s?[:：ঃ=] | \s[—–-](?=\s) | \b(?:{any_of(_VERBS)})\b | {any_of(_JOINED_VERBS)} )
        (?:\s(?:{any_of(_all("then", joined=False))})\b)? )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FOUND_FAST = [noun.replace(".", " ") for noun in _NOUNS | _JOINED_NOUNS]
_LIKE_ASCII = re.compile(r"[^\D0-9]|[Ａ-Ｚａ-ｚ]")
_GROUPED = re.compile(r"([^0-9(\[{]*)([0-9]{1,3}(?:[. \u00a0\u202f][0-9]{3})+)(?:,([0-9]+))?([^0-9,.)\]}]*)")
_DECIMAL = re.compile(r"([^0-9(\[{]*[0-9]+),([0-9]{1,2}|[0-9]{4,}|(?<=\b0,)[0-9]+)([^0-9,.)\]}]*)")
_COMMA = any_of(_all("comma", joined=False))
_HAS_DECIMAL_COMMA = re.compile(rf"\b(?:{_COMMA})\b|[а-яё]{{3}}|[α-ω]{{4}}", re.IGNORECASE)


def announcements(text: str) -> Iterator[re.Match[str]]:
    """From each noun that announces an answer to where the answer begins."""
    lower = text.lower()
    return _ANNOUNCEMENT.finditer(text) if any(noun in lower for noun in _FOUND_FAST) else iter(())


def with_digits(text: str) -> str:
    """The text with the digits of all scripts written 0 to 9, and wide letters as A to Z."""
    return text if text.isascii() else _LIKE_ASCII.sub(_ascii, text)


def _ascii(character: re.Match[str]) -> str:
    value = unicodedata.decimal(character[0], None)
    return unicodedata.normalize("NFKC", character[0]) if value is None else str(value)


def with_decimal_point(answer: str, text: str) -> str:
    """The answer in a text with a number such as 1.234,5 written 1234.5; in a text of a language with a decimal comma,
    also 3,5 as 3.5 and 12.000 as 12000. Answers with brackets or several numbers are left alone."""
    if number := _GROUPED.fullmatch(answer):
        before, whole, decimals, after = number.groups()
        if decimals or whole.count(".") > 1 or ("." in whole and _HAS_DECIMAL_COMMA.search(text)):
            return before + re.sub(r"\D", "", whole) + (f".{decimals}" if decimals else "") + after
    elif (number := _DECIMAL.fullmatch(answer)) and _HAS_DECIMAL_COMMA.search(text):
        return f"{number[1]}.{number[2]}{number[3]}"
    return answer
