"""The words after a number: units, which are kept in one spelling (15 cm^2, 3 hours, 5 dollars), and nouns, which are
dropped (5 apples), unless there are several of them (3 boys and 5 girls).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from unprm.answers.mathtext.tokens import CLOSING, OPENING, is_letters, is_number, is_text, is_unit_token, unit_token
from unprm.answers.mathtext.units import is_unit_after, spelled_unit, unit, unit_name, unit_powers
from unprm.answers.mathtext.words import (
    CONTRASTS,
    FUNCTION_NAMES,
    MULTIPLIERS,
    changes_meaning,
    is_noun,
    is_word,
    qualifies,
)

_ITEM = re.compile(r"[^\W\d_]+|[0-9]+|[/^*-]")
_PREFIXES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = {"squared": 2, "cubed": 3}
_PAIRS = {
    ("fluid", "ounce"): "floz", ("fl", "oz"): "floz", ("troy", "ounce"): "troyounce", ("metric", "ton"): "tonne",
    ("long", "ton"): "longton", ("nautical", "mile"): "nmi", ("light", "year"): "ly", ("astronomical", "unit"): "au",
    ("per", "cent"): "percent", ("us", "dollar"): "dollar", ("degree", "celsius"): "degC", ("degree", "c"): "degC",
    ("degree", "fahrenheit"): "degF", ("degree", "f"): "degF",
}  # fmt: skip
_TEMPERATURES = {"c": "degC", "f": "degF", "celsius": "degC", "fahrenheit": "degF"}
_JOINS = frozenset(["/", "per", "a", "an", "each", "every", "*", "-"])
_CLOCK = re.compile(r"\b([ap])\.\s?m\b", re.IGNORECASE)
_SMALL_WORDS = frozenset(
    ["a", "an", "the", "of", "per", "in", "on", "at", "to", "is", "are", "it", "he", "as", "by", "s"]
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """`powers`: the power of each unit by name. `noun`: the other words, in the singular, empty if there are none;
    `written`: all words; `kept`: whether they change what is meant."""

    powers: Mapping[str, int] = field(default_factory=dict)
    noun: str = ""
    written: str = ""
    kept: bool = False

    @property
    def is_temperature(self) -> bool:
        """Whether it continues a degree sign: the C or F of ``20° C``."""
        return not self.powers.keys().isdisjoint(_TEMPERATURES.values())


def read_phrase(tokens: Sequence[str], *, spaced: bool, degrees: bool, literal: bool) -> Phrase | None:
    """The phrase in these tokens, which have no blanks. `spaced`: a blank precedes them; `degrees`: a degree sign
    does; `literal`: the value before them has no letters. None if they may be a product of variables, or are not a
    phrase."""
    items = [item for token in tokens for item in _items(token)]
    if not items or (items[0].lower() in FUNCTION_NAMES and not _is_short_time(items)):
        return None
    reader = _Reader(items, upright=is_text(tokens[0]), spaced=spaced, literal=literal)
    reader.read(degrees=degrees)
    others = reader.others()
    contrasts = {unit_name(word): 1 for word in others if unit_name(word) in CONTRASTS}
    kept = changes_meaning(others) or qualifies(others) or others[:1] in (["is"], ["are"])
    if not (all(map(_is_prose, items)) if kept else reader.understood(others)):
        return None
    nouns = [word for word in others if word not in _SMALL_WORDS and unit_name(word) not in contrasts]
    noun = " ".join(word.removesuffix("s") for word in nouns)
    return Phrase(reader.powers | contrasts, noun, " ".join(items).lower(), kept)


def _items(token: str) -> list[str]:
    if is_text(token):
        return _ITEM.findall(_CLOCK.sub(r"\1m", token[6:-1]))
    return [token] if is_letters(token) or _ITEM.fullmatch(token) else []


def _is_short_time(items: Sequence[str]) -> bool:
    """Whether this is a unit such as ``min`` or ``sec``, not a function with its argument."""
    return bool(unit_name(items[0])) and not "".join(items[1:2]).isalpha()


def _is_prose(item: str) -> bool:
    return item.isalpha() and (is_word(item) or bool(unit_name(item)) or item.lower() in _SMALL_WORDS)


class _Reader:
    """A cursor over the words and signs of a phrase. `upright`: they are a text; `spaced`: a blank precedes them;
    `literal`: the value before them has no letters."""

    def __init__(self, items: Sequence[str], *, upright: bool, spaced: bool, literal: bool) -> None:
        self.items = items
        self.at = 0
        self.upright = upright
        self.spaced = spaced or upright
        self.literal = literal
        self.powers: dict[str, int] = {}
        self.nouns: list[str] = []

    def read(self, *, degrees: bool) -> None:
        """A unit or nouns, then what they are counted by: ``miles per hour``, ``pages a day``."""
        if degrees and self._item().lower() in _TEMPERATURES:
            self.powers[_TEMPERATURES[self._item().lower()]] = 1
            self.at += 1
        elif not (self._may_be_unit() and self._factor(1)):
            self._read_nouns()
        while self._item().lower() in _JOINS and self._item() != "":
            sign = 1 if self._item() in ("*", "-") else -1
            self.at += 1
            if not self._factor(sign):
                self.at -= 1
                break

    def _read_nouns(self) -> None:
        while self._item().isalpha() and self._item().lower() not in _JOINS:
            self.nouns.append(self._item())
            self.at += 1

    def others(self) -> list[str]:
        """The words that are not part of a unit, in lower case."""
        return [word.lower() for word in (*self.nouns, *self.items[self.at :]) if word.isalpha()]

    def understood(self, others: Sequence[str]) -> bool:
        """Whether these are a unit or nouns, and not variables."""
        if self.nouns:
            first = self.nouns[0].lower()
            return self.upright or is_noun(first, spaced=self.spaced) or (first == "in" and len(self.nouns) > 1)
        plain = all(len(word) > 2 or word in _SMALL_WORDS for word in others)
        return bool(self.powers) and (self.upright or plain)

    def _item(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.items[at] if at < len(self.items) else ""

    def _may_be_unit(self) -> bool:
        """Whether what follows the number can't be a variable."""
        first = self._item()
        if self.upright or first == "/" or first.lower() in _PREFIXES or self._pair():
            return True
        if len(first) == 1 and self._item(1).isalpha():  # 10 m s may be a product
            return False
        return is_unit_after(first, spaced=self.spaced, literal=self.literal, raised=self._item(1) == "^")

    def _factor(self, sign: int) -> bool:
        """Takes a unit with its power, if one comes next; returns whether it did."""
        start = self.at
        power = _PREFIXES.get(self._item().lower(), 1)
        self.at += power > 1
        name, words = self._name()
        if not name:
            self.at = start
            return False
        self.at += words
        self.powers[name] = self.powers.get(name, 0) + sign * self._power(power)
        return True

    def _name(self) -> tuple[str, int]:
        """The name of the unit that comes next, and its number of words."""
        if pair := self._pair():
            return pair, 2
        if self._item().lower() == "in" and self._item(1).isalpha():  # 5 in a row
            return "", 0
        return unit_name(self._item()), 1

    def _pair(self) -> str:
        """The name of the unit of two words that comes next, each in the singular or plural; else empty."""
        first, second = self._item().lower(), self._item(1).lower()
        singular = first.removesuffix("s"), second if second == "celsius" else second.removesuffix("s")
        return _PAIRS.get((first, second)) or _PAIRS.get(singular, "")

    def _power(self, power: int) -> int:
        """The power of the unit just taken: ``m^2``, ``s^-1``, ``m2``, ``feet squared``."""
        if self._item().lower() in _RAISED:
            self.at += 1
            return _RAISED[self._item(-1).lower()]
        signs = [self._item(ahead) for ahead in range(3)]
        raised = signs[0] == "^"
        negative = raised and signs[1] == "-"
        digit = signs[raised + negative]
        if not digit.isdigit():
            return power
        self.at += raised + negative + 1
        return -int(digit) if negative else int(digit)


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
