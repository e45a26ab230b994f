"""The words after a number: units, which are kept in one spelling (15 cm^2, 3 hours, 5 dollars), and nouns, which are
dropped (5 apples), unless there are several of them (3 boys and 5 girls)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from unprm.answers.mathtext.phrases import Phrase, read_phrase
from unprm.answers.mathtext.tokens import CLOSING, OPENING, is_letters, is_number, is_text, is_unit_token, unit_token
from unprm.answers.mathtext.units import spelled_unit, unit, unit_powers
from unprm.answers.mathtext.words import CONTRASTS, MULTIPLIERS

_IN_PHRASE = frozenset([" ", "^", "{", "}", "/", ".", "-", "'", "*"])
_LITERAL = frozenset(["\\frac", "\\sqrt"])
_LONGEST = 24  # tokens of a phrase

Segment = tuple[list[str], str, str]
"""The tokens between two brackets, commas or relations, and the tokens before and after them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The tokens of a value, and what follows it. `sign`: the currency sign before the value, if any."""

    value: list[str]
    phrase: Phrase = field(default_factory=Phrase)
    sign: str = ""

    def tokens(self, *, with_noun: bool) -> list[str]:
        """The value with its unit, or with its words unchanged."""
        if self.phrase.kept or (with_noun and self.phrase.noun):
            return [*self.value, "\\text{" + self.phrase.written + "}"]
        spelled = self.unit()
        return [*self.value, unit_token(spelled)] if spelled else self.value

    def unit(self) -> str:
        """The unit; that of ``$5 per hour`` combines the sign's and the words'."""
        powers = dict(self.phrase.powers)
        if self.sign and all(power < 0 or name in CONTRASTS for name, power in powers.items()):
            powers[self.sign] = powers.get(self.sign, 0) + 1
        spelled = spelled_unit(powers)
        return spelled if unit(spelled) else ""


def read_measures(segments: Sequence[Segment]) -> list[list[str]]:
    """The segments with their units in one spelling, and without their nouns unless these differ."""
    read = [_measured(*segment) for segment in segments]
    several = len({measured.phrase.noun for measured in read if measured.phrase.noun}) > 1
    return [measured.tokens(with_noun=several) for measured in read]


def _measured(segment: list[str], before: str, after: str) -> Measured:
    value, sign = _without_signs(segment, before)
    if after in OPENING:
        return Measured(value)
    return replace(_suffixed(value, before), sign=sign)


def _without_signs(segment: list[str], before: str) -> tuple[list[str], str]:
    """The segment without units before a value, such as currency signs, and the first of those units."""
    kept, signs, last = [], [], before
    for token in segment:
        if is_unit_token(token) and not (last in CLOSING or _ends_a_value(last, token)):
            signs.append(token[6:-1])
        else:
            kept.append(token)
        last = last if token == " " else token
    return kept, signs[0] if signs else ""


def _suffixed(segment: list[str], before: str) -> Measured:
    if segment and is_unit_token(segment[-1]):
        return Measured(segment[:-1], Phrase(unit_powers(segment[-1][6:-1])))
    if before in CLOSING and (phrase := _phrase(segment, 0)) is not None:
        return Measured([], phrase)
    for at in range(max(1, len(segment) - _LONGEST), len(segment)):
        end = at - (segment[at - 1] == " ")
        if not end or not _ends_a_value(segment[end - 1], segment[at]):
            continue
        phrase = _phrase(segment, at)
        if phrase is not None:
            degree = segment[end - 1] == "°" and phrase.is_temperature
            return Measured(_compound(segment[: end - degree], before, phrase), phrase)
    return Measured(segment)


def _compound(value: list[str], before: str, phrase: Phrase) -> list[str]:
    """``1 hour 30`` before a unit, with the inner unit in one spelling."""
    if not phrase.powers or len(value) < 3 or not is_number(value[-1]):
        return value
    first = _suffixed(value[: -2 if value[-2] == " " else -1], before)
    if not first.phrase.powers or first.phrase.noun or first.phrase.kept or not first.value:
        return value
    return [*first.tokens(with_noun=False), value[-1]]


def _ends_a_value(last: str, following: str) -> bool:
    if is_number(last) or last in ("}", "\\pi", "%", "°", "!") or last.removesuffix("s") in MULTIPLIERS:
        return True
    return (is_text(following) or is_unit_token(following)) and is_letters(last)


def _phrase(segment: Sequence[str], at: int) -> Phrase | None:
    """What the tokens from `at` on say about the value before them."""
    spaced = segment[at] == " " or (at > 0 and segment[at - 1] == " ")
    tokens = [token for token in segment[at:] if token != " "]
    if not tokens or not (is_text(tokens[0]) or is_letters(tokens[0]) or tokens[0] == "/"):
        return None
    if not all(_in_phrase(last, token) for last, token in pairwise(["", *tokens])):
        return None
    value = [token for token in segment[:at] if token != " "]
    literal = not any(is_letters(token) or (token[0] == "\\" and token not in _LITERAL) for token in value)
    return read_phrase(tokens, spaced=spaced, degrees=value[-1:] == ["°"], literal=literal)


def _in_phrase(last: str, token: str) -> bool:
    power = token in ("1", "2", "3") and last in ("^", "{", "-")
    return power or is_text(token) or is_letters(token) or token in _IN_PHRASE
