"""English words beside a number: which only name what is counted, and which change what is meant."""

import re
from collections.abc import Iterable

from unprm.answers.tables import pattern, table, words

CONTRASTS = words("contrasts")
INTRODUCTIONS = words("introduces")
FUNCTION_NAMES = words("functions", "latex")
MULTIPLIERS: dict[str, int] = table("words")["multipliers"]
_MEANING, _QUALIFIERS, _COUNTED = words("changes_meaning"), words("qualifies"), words("counted")
_SHORT_NOUNS = words("short_nouns")
_VARIABLES = frozenset("abcdkmnpqrxyz")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case; p.m. counts as one word."""
    return re.findall("[A-Za-z]+", pattern("clock").sub(r"\1m", text.lower()))


def changes_meaning(words: Iterable[str]) -> bool:
    """Whether a word beside a number, in the singular or plural, changes its meaning, as no unit does."""
    return any(word.lower() in _MEANING or word.lower().removesuffix("s") in _MEANING for word in words)


def qualifies(words: Iterable[str]) -> bool:
    """Whether a word after a number qualifies it, rather than naming what it counts."""
    return any(word.lower() in _QUALIFIERS for word in words)


def is_word(run: str) -> bool:
    """Whether a run of letters is a word, not a product of variables (``odd`` and not ``xyz`` or ``mgh``)."""
    if len(run) < 3:
        return run.lower() == "no"
    if run.istitle():
        return True
    distinct = set(run.lower())
    if len(run) < 5 and run.islower() and distinct.isdisjoint("aeiouy"):
        return not run.isascii()
    return not (distinct <= _VARIABLES and len(distinct) == len(run))


def is_noun(run: str, *, spaced: bool) -> bool:
    """Whether a run of letters after a number names what it counts; `spaced`: a blank is between them."""
    run = run.lower()
    if not run.isascii() or run in _COUNTED or run.removesuffix("s") in _COUNTED:
        return True
    return spaced and run not in FUNCTION_NAMES and (run in _SHORT_NOUNS or (len(run) >= 4 and is_word(run)))
