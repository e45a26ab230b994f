"""Spellings other than LaTeX's, rewritten by the table `notations`: characters of Unicode, variants of LaTeX, and
notations of numbers from code, trade and other languages."""

import re
import unicodedata
from collections.abc import Callable
from itertools import groupby

from unprm.answers.mathtext.tokens import unit_token
from unprm.answers.mathtext.units import unit_name
from unprm.answers.tables import compiled, table, words

_INVISIBLE = dict.fromkeys((0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, 0xFE0F), "")
_CHARACTERS = str.maketrans(table("notations")["characters"]) | _INVISIBLE
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_MICRO = re.compile("[µμ](?=[A-Za-z]{1,3}(?![A-Za-z]))")
_DIGIT = re.compile(r"(?![0-9])\d")  # of another script
_ELLIPSIS = re.compile(r"\.\.\.+|\. \. \.")
_CURRENCIES = words("currencies", "units")
_DENOMINATORS: dict[str, int] = table("words")["denominators"]


def plain_characters(text: str) -> str:
    """The text with every known symbol in LaTeX, other compatibility forms (fullwidth digits …) in NFKC,
    and runs of white space as one blank. Linear in the length."""
    text = _plain(text) if not text.isascii() else text.replace('"', "")
    return " ".join(_ELLIPSIS.sub("\\\\ldots ", text).split())


def _plain(text: str) -> str:
    text = _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), _MICRO.sub("micro", text))
    text = _RAISED.sub(lambda run: "^{" + unicodedata.normalize("NFKC", run[0]) + "}", text)
    text = _LOWERED.sub(lambda run: "_{" + unicodedata.normalize("NFKC", run[0]) + "}", text)
    # Twice: a fullwidth form becomes its sign only after NFKC, and NFKC would flatten ½.
    return unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)


def _ungrouped(found: re.Match[str]) -> str:
    return found[0].replace(".", "").replace(",", ".")


def _without_commas(found: re.Match[str]) -> str:
    return found[0].replace(",", "")


def _part(found: re.Match[str]) -> str:
    under = _DENOMINATORS[found[2].lower()]
    return f"{found[1]}/{under}" if int(found[1]) < under else found[0]


def _cut_short(found: re.Match[str]) -> str:
    """A decimal whose last three digits are the same repeats that digit; any other ends where it is cut."""
    last, run = [(digit, len(list(run))) for digit, run in groupby(found[1])][-1]
    return f".{found[1][: len(found[1]) - run]}\\overline{{{last}}}" if run > 2 else f".{found[1]}"


def _currency_first(found: re.Match[str]) -> str:
    name = unit_name(found[1])
    return unit_token(name) if name in _CURRENCIES else found[0]


def _clock(found: re.Match[str]) -> str:
    return f" {found[1].lower()}m "


def _braced(found: re.Match[str]) -> str:
    return f"{found[1]}{{{found[2]}}}" if found[1] else found[0]


_FUNCTIONS: dict[str, Callable[[re.Match[str]], str]] = {
    "ungrouped": _ungrouped, "without_commas": _without_commas, "part": _part, "cut_short": _cut_short,
    "currency_first": _currency_first, "clock": _clock, "braced": _braced,
}  # fmt: skip
_REWRITES = [
    (row.get("has", ""), row.get("unless"), compiled(row["of"]), row["to"] if "to" in row else _FUNCTIONS[row["by"]])
    for row in table("notations")["rewrites"]
]


def plain_notation(text: str) -> str:
    """The text with every notation of the table in plain LaTeX."""
    for has, unless, pattern, rewritten in _REWRITES:
        if has in text and (unless is None or unless not in text):
            text = pattern.sub(rewritten, text)
    return text
