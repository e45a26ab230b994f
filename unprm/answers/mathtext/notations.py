"""Spellings other than LaTeX's, rewritten by the table `notations`: characters of Unicode, variants of LaTeX, and
notations of numbers from code, trade and other languages."""

import re
import unicodedata

from unprm.answers.languages import with_digits
from unprm.answers.tables import compiled, pattern, table

_INVISIBLE = dict.fromkeys((0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, 0xFE0F), "")
_CHARACTERS = str.maketrans(table("notations")["characters"]) | _INVISIBLE
_SCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+|([₀₁₂₃₄₅₆₇₈₉₊₋]+)")
_MICRO = re.compile("[µμ](?=[A-Za-z]{1,3}(?![A-Za-z]))")
_ELLIPSIS = re.compile(r"\.\.\.+|\. \. \.")


def plain_characters(text: str) -> str:
    """The text with every known symbol in LaTeX, other compatibility forms (fullwidth digits …) in NFKC,
    and runs of white space as one blank. Linear in the length."""
    text = _plain(text) if not text.isascii() else text.replace('"', "")
    return " ".join(_ELLIPSIS.sub("\\\\ldots ", text).split())


def _plain(text: str) -> str:
    text = _SCRIPT.sub(
        lambda run: ("_{" if run[1] else "^{") + unicodedata.normalize("NFKC", run[0]) + "}",
        with_digits(_MICRO.sub("micro", text)),
    )
    # Twice: a fullwidth form becomes its sign only after NFKC, and NFKC would flatten ½.
    return unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)


def plain_notation(text: str) -> str:
    """The text with every notation of the table in plain LaTeX."""
    for row in table("notations")["rewrites"]:
        if row.get("has", "") in text and row.get("unless", "\0") not in text:
            text = compiled(row["of"]).sub(row["to"], text)
    return text


def with_figures(text: str) -> str:
    """The text with every number in words in figures; a scale like "million" stays."""
    return pattern("number_in_words").sub(lambda found: _figures(found[0]), text)


def _figures(words: str) -> str:
    """The figures of words that are a single number below 10,000; other words unchanged."""
    total, free = 0, 10**3  # what may follow is less than `free`
    for word in re.split(r"[\s-]+(?:and\s+)?", words.lower()):
        if word == "hundred":
            if not 0 < total < 100:
                return words
            total, free = 100 * total, 100
        elif (value := table("words")["numbers"][word]) < free:
            total += value
            free = 10 if value >= 20 and value % 10 == 0 else 0
        else:
            return words
    return str(total)
