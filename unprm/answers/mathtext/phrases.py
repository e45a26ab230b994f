"""The words after a value: a unit (miles per hour), a noun (apples), or words that change what is meant (older)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unprm.answers.mathtext.tokens import is_letters, is_text
from unprm.answers.mathtext.units import is_unit_after, unit_name
from unprm.answers.mathtext.words import CONTRASTS, FUNCTION_NAMES, changes_meaning, is_noun, is_word, qualifies

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
