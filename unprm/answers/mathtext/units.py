"""Units of measure, from the table `units`.

A unit is spelled like ``m s-1``: names from the table with their powers. Words with an opposite (heads and tails,
upward and downward), moduli, bases and nouns are units of a kind of their own: mod(7), base(2), of(apple).
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from unprm.answers.mathtext.words import CONTRASTS
from unprm.answers.tables import table, words

MAX_PARTS = 4  # names in one unit
_LETTERS, _RAISED_LETTERS = words("single_letters", "units"), words("single_letters_with_powers", "units")
_PART = re.compile(r"((?:mod|base|of)\([\w.]+\)|[^\W\d_]+)(-?[1-9])?")


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor` base units of its kind, which is spelled like ``m s-1``."""

    factor: Fraction
    kind: str


def _read() -> tuple[dict[str, Unit], dict[str, str]]:
    """The units by their names in a key, and these names by all spellings."""
    names = {word: word for word in CONTRASTS | words("unconverted", "units")}
    units = {word: Unit(Fraction(1), word) for word in names}
    prefixed: dict[str, str] = {}
    for kind, of_kind in table("units")["kind"].items():
        for name, line in of_kind.items():
            factor, *spellings = line.split()
            units[name] = Unit(Fraction(factor), kind)
            names.update((spelling.removeprefix("~"), name) for spelling in [name, *spellings])
            for spelling in (spelling[1:] for spelling in spellings if spelling[0] == "~"):
                for symbol, prefix in table("units")["prefix"].items():
                    units[symbol + name] = Unit(Fraction(prefix["factor"]) * Fraction(factor), kind)
                    prefixed[prefix["word"] + spelling] = symbol + name
                    if len(spelling) <= 3 and "symbol" in prefix:
                        prefixed[symbol + spelling] = symbol + name
    return units, prefixed | names


UNITS, _NAMES = _read()


def unit_name(word: str) -> str:
    """The canonical name of the unit that a word spells, in the singular or plural; empty if it spells none."""
    lower = word.lower() if len(word) > 1 else word
    found = _NAMES.get(word) or _NAMES.get(lower, "")
    if not found and len(lower) > 2 and lower.endswith("s"):
        found = _NAMES.get(lower[:-1], "")
    return found


def is_unit_after(word: str, *, spaced: bool, literal: bool, raised: bool) -> bool:
    """Whether a run of letters after a value spells a unit, and is not a product of variables. `spaced`: a blank is
    between them; `literal`: the value has no letters; `raised`: the letters have a power."""
    if not unit_name(word):
        return False
    if len(word) == 1 and word.isascii():
        return spaced and literal and word in (_RAISED_LETTERS if raised else _LETTERS)
    return spaced or len(word) > 3 or not word.isascii()


@lru_cache(maxsize=4096)
def unit(spelled: str) -> Unit | None:
    """The unit with a spelling like ``m s-1``; None if there is no such unit."""
    factor, powers = Fraction(1), dict[str, int]()
    parts = unit_powers(spelled)
    if not len(parts) == len(spelled.split(" ")) <= MAX_PARTS:
        return None
    for name, power in parts.items():
        known = UNITS.get(name) or (Unit(Fraction(1), name) if "(" in name else None)
        if known is None:
            return None
        factor *= known.factor**power
        for base, times in unit_powers(known.kind).items():
            powers[base] = powers.get(base, 0) + power * times
    return Unit(factor, spelled_unit(powers))


def unit_powers(spelled: str) -> dict[str, int]:
    """The powers of the names in a unit's spelling."""
    found = [_PART.fullmatch(part) for part in spelled.split(" ")]
    return {match[1]: int(match[2] or 1) for match in found if match}


def spelled_unit(powers: dict[str, int]) -> str:
    """Names with their powers, as `unit` reads them; those of power 0 are left out."""
    ordered = sorted((name, power) for name, power in powers.items() if power)
    return " ".join(name if power == 1 else f"{name}{power}" for name, power in ordered)
