"""Units of measure: a closed table, and each unit's factor to the base unit of its kind.

A unit is spelled like ``m s-1``: names from the table with their powers. Kinds that differ only by a convention or by
an offset (months and days, tons, temperatures, currencies) are not converted into each other.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from unprm.answers.mathtext.words import words_in

# base unit and its power | factor | names; the first one is the canonical spelling
_TABLE = """
    m       | 1              | m meter metre
    m       | 1/1000000000   | nm nanometer nanometre
    m       | 1/1000         | mm millimeter millimetre
    m       | 1/100          | cm centimeter centimetre
    m       | 1/10           | dm decimeter decimetre
    m       | 1000           | km kilometer kilometre
    m       | 127/5000       | in inch
    m       | 381/1250       | ft foot feet
    m       | 1143/1250      | yd yard
    m       | 201168/125     | mi mile
    m2      | 10000          | hectare
    m2      | 316160658/78125 | acre
    m3      | 1/1000         | L l liter litre
    m3      | 1/1000000      | mL ml milliliter millilitre
    m3      | 1/100000       | cL cl centiliter centilitre
    m3      | 1              | kL kl kiloliter kilolitre
    m3      | 473176473/125000000000   | gal gallon
    m3      | 473176473/500000000000   | qt quart
    m3      | 473176473/1000000000000  | pint
    m3      | 473176473/2000000000000  | cup
    m3      | 473176473/16000000000000 | floz
    m3      | 473176473/32000000000000 | tbsp tablespoon
    m3      | 473176473/96000000000000 | tsp teaspoon
    kg      | 1              | kg kilogram
    kg      | 1/1000         | g gram gm
    kg      | 1/1000000      | mg milligram
    kg      | 1000           | tonne
    kg      | 45359237/100000000   | lb pound
    kg      | 45359237/1600000000  | oz ounce
    ton     | 1              | ton
    s       | 1              | s second sec
    s       | 1/1000         | ms millisecond
    s       | 60             | min minute
    s       | 3600           | h hour hr
    s       | 86400          | day
    s       | 604800         | week wk
    month   | 1              | month
    month   | 12             | year yr
    month   | 120            | decade
    month   | 1200           | century
    m s-1   | 1397/3125      | mph
    m s-1   | 5/18           | kmh kph
    m s-1   | 463/900        | knot
    deg     | 1              | deg degree
    rad     | 1              | rad radian
    degC    | 1              | degC celsius centigrade
    degF    | 1              | degF fahrenheit
    K       | 1              | K kelvin
    percent | 1              | percent pct
    dollar  | 1              | dollar usd buck
    dollar  | 1/100          | cent
    euro    | 1              | euro eur
    gbp     | 1              | gbp
    inr     | 1              | inr rupee
    yen     | 1              | yen jpy
    yuan    | 1              | yuan rmb
    peso    | 1              | peso
    N       | 1              | N newton
    J       | 1              | J joule
    J       | 1000           | kJ kj kilojoule
    W       | 1              | W watt
    W       | 1000           | kW kw kilowatt
    kwh     | 1              | kwh
    V       | 1              | V volt
    ampere  | 1              | ampere amp
    ohm     | 1              | ohm
    Hz      | 1              | Hz hz hertz
    Hz      | 1000           | kHz khz kilohertz
    Hz      | 1000000        | MHz mhz megahertz
    Pa      | 1              | Pa pascal
    Pa      | 1000           | kPa kpa kilopascal
    cal     | 1              | cal calorie
    cal     | 1000           | kcal kilocalorie
    mol     | 1              | mol mole
    byte    | 1              | byte
    bit     | 1              | bit
"""
_PLURALS = {"inches": "in", "centuries": "century", "henries": "henry", "feet": "ft"}
_AFTER_A_BLANK = words_in("m g s h L")  # the single letters that are units after a blank; others are variables
_PART = re.compile(r"([A-Za-z]+)(-?[1-9])?")
MAX_PARTS = 4  # names in one unit


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor` base units of its kind, which is spelled like ``m s-1``."""

    factor: Fraction
    kind: str


def _read() -> tuple[dict[str, Unit], dict[str, str]]:
    units: dict[str, Unit] = {}
    names: dict[str, str] = {}
    for line in _TABLE.strip().splitlines():
        kind, factor, spellings = (cell.strip() for cell in line.split("|"))
        canonical, *others = spellings.split()
        units[canonical] = Unit(Fraction(factor), kind)
        names.update(dict.fromkeys([canonical, *others], canonical))
    return units, names


UNITS, _NAMES = _read()


def unit_name(word: str) -> str:
    """The canonical name of the unit that a word spells, in the singular or plural; empty if it spells none."""
    lower = word.lower() if len(word) > 1 else word
    found = _NAMES.get(word) or _NAMES.get(lower) or _PLURALS.get(lower, "")
    if not found and len(lower) > 2 and lower.endswith("s"):
        found = _NAMES.get(lower[:-1], "")
    return found


def is_unit_after(word: str, *, spaced: bool) -> bool:
    """Whether a run of letters after a number spells a unit, and is not a product of variables; `spaced`: a blank is
    between them."""
    if not unit_name(word):
        return False
    return len(word) > 3 or (spaced and (len(word) > 1 or word in _AFTER_A_BLANK))


@cache
def unit(spelled: str) -> Unit | None:
    """The unit with a spelling like ``m s-1``; None if there is no such unit."""
    factor, powers = Fraction(1), dict[str, int]()
    parts = spelled.split(" ")
    if len(parts) > MAX_PARTS:
        return None
    for part in parts:
        found = _PART.fullmatch(part)
        if found is None or found[1] not in UNITS:
            return None
        power = int(found[2] or 1)
        factor *= UNITS[found[1]].factor ** power
        for base, times in unit_powers(UNITS[found[1]].kind).items():
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
