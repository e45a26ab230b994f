"""Units after a number, which carry no information in an answer: 15 cm^2, 10 weeks, 5 apples."""

from collections.abc import Sequence
from itertools import pairwise

from unprm.mathtext.tokens import CLOSING, OPENING, is_letters, is_number, is_text
from unprm.mathtext.words import changes_meaning, is_unit, words_of

_IN_UNITS = frozenset([" ", "^", "{", "}", "/", ".", "-", "'"])
_LONGEST = 24  # tokens of a unit


def drop_unit(segment: list[str], before: str, after: str) -> list[str]:
    """The tokens of a value without its unit; `before` and `after` are the tokens around them."""
    if after in OPENING:
        return segment
    phrase = segment[1:] if segment[0] == " " else segment
    if before in CLOSING and phrase and _is_unit_phrase(phrase, spaced=phrase is not segment):
        return []
    for at in range(max(1, len(segment) - _LONGEST), len(segment)):
        spaced = segment[at - 1] == " "
        end = at - spaced
        if end and _ends_a_value(segment[end - 1], segment[at]) and _is_unit_phrase(segment[at:], spaced=spaced):
            return segment[:end]
    return segment


def _ends_a_value(last: str, unit: str) -> bool:
    if is_number(last) or last in ("}", "\\pi", "%", "°", "!"):
        return True
    return is_text(unit) and is_letters(last)


def _in_unit(last: str, token: str) -> bool:
    power = token in ("2", "3") and last in ("^", "{")
    return power or is_text(token) or is_letters(token) or token in _IN_UNITS


def _is_unit_phrase(phrase: Sequence[str], *, spaced: bool) -> bool:
    if not (is_text(phrase[0]) or is_letters(phrase[0])):
        return False
    if not all(_in_unit(last, token) for last, token in pairwise(["", *phrase])):
        return False
    texts = [word for token in phrase if is_text(token) for word in words_of(token[6:-1])]
    first, *others = [token for token in phrase if is_letters(token)] or [""]
    if first and not is_unit(first, spaced=spaced or is_text(phrase[0])):
        return False
    return not changes_meaning([*texts, *others]) and texts[:1] not in (["is"], ["are"])
