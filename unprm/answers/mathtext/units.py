"""Units of measure: a table, SI's prefixes as a rule, and each unit's factor to the base unit of its kind.

A unit is spelled like ``m s-1``: names from the table with their powers. Kinds that differ only by a convention or by
an offset (months and days, tons, temperatures, currencies) are not converted into each other. Words with an opposite
(heads and tails, upward and downward), moduli and bases are units of a kind of their own: mod(7), base(2).
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from unprm.answers.mathtext.words import CONTRASTS, words_in

# The base unit of a kind, then its units: a factor, and names, the first of which is the canonical spelling. A name
# with ~ takes prefixes: symbols of up to three letters SI's symbols, longer names SI's words.
_TABLE = """
    m: 1 ~m ~meter ~metre ~metro ~mètre метр метра метров м 米 미터 メートル; 1/10 dm decimeter decimetre;
        1/100 cm centimeter centimetre centímetro centimètre zentimeter см 厘米 センチメートル センチ;
        1/1000 мм 毫米; 1000 км километр километра километров kilómetro kilomètre 千米 公里 킬로미터 キロメートル;
        0.0254 in inch; 0.3048 ft foot feet; 0.9144 yd yard; 1609.344 mi mile; 1852 nmi; 201.168 furlong;
        20.1168 chain; 5.0292 rod; 1.8288 fathom; 0.1016 hand; 4828.032 league; 0.4572 cubit;
        1/10000000000 angstrom; 149597870700 au;
        9460730472580800 ly lightyear
    parsec: 1 ~parsec
    m2: 10000 hectare ha; 4046.8564224 acre; 1 平方米 平方メートル; 1/10000 平方厘米; 1000000 平方公里 平方千米
    m3: 1/1000 ~L ~l ~liter ~litre ~litro литр литра литров 升 リットル 리터; 1/100000 cL cl centiliter centilitre;
        1/10000 dL dl deciliter decilitre; 1/1000000 cc 毫升 ミリリットル; 1 立方米; 0.003785411784 gal gallon;
        0.000946352946 qt quart; 0.000473176473 pint; 0.0002365882365 cup; 0.0000295735295625 floz;
        0.00001478676478125 tbsp tablespoon; 0.00000492892159375 tsp teaspoon; 0.03523907016688 bushel bu;
        0.00880976754172 peck
    barrel: 1 barrel bbl
    kg: 1/1000 ~g ~gram ~gramo ~gramme gm грамм г 克 グラム 그램; 1 кг килограмм 千克 公斤 キログラム キロ 킬로그램;
        1/2 斤; 1000 tonne 吨; 0.45359237 lb pound; 0.028349523125 oz ounce; 6.35029318 stone; 1/5000 carat;
        0.0311034768 troyounce; 1016.0469088 longton; 0.00006479891 grain
    ton: 1 ~ton
    s: 1 ~s ~second sec segundo seconde sekunde секунда секунды секунд 秒 秒钟 초;
        60 min minute minuto minuten минута минуты минут мин 分钟 分 분 dakika;
        3600 h hour hr hora heure stunde stunden час часа часов 小时 時間 시간 saa;
        86400 day día dia jour tage tagen день дня дней 天 日 일 siku;
        604800 week wk semana semaine woche wochen неделя недели недель 周 星期 週間 주 wiki; 1209600 fortnight
    month: 1 month mes meses mois monat monate monaten месяц месяца месяцев 个月 ヶ月 か月 개월 miezi mwezi;
        12 year yr año ans année jahr jahre jahren год года лет 年 년 歲 岁 歳 miaka mwaka; 120 decade;
        1200 century; 12000 millennium
    m s-1: 0.44704 mph; 5/18 kmh kph kmph; 463/900 knot kt
    deg: 1 deg degree; 1/60 arcminute arcmin; 1/3600 arcsecond arcsec
    rad: 1 rad radian
    degC: 1 degC celsius centigrade
    degF: 1 degF fahrenheit
    K: 1 ~K kelvin
    percent: 1 percent pct prozent porciento
    dollar: 1 dollar usd buck dólar dólares 美元 ドル 달러 доллар доллара долларов; 1/100 cent
    euro: 1 euro eur евро 欧元 ユーロ 유로
    gbp: 1 gbp
    penny: 1 penny pence pennies
    inr: 1 inr rupee rs
    paisa: 1 paisa paise
    yen: 1 yen jpy 円 日元
    yuan: 1 yuan rmb cny 元 块 人民币; 1/10 jiao 角 毛; 1/100 fen
    won: 1 won krw 원
    ruble: 1 ruble rouble rub рубль рубля рублей руб; 1/100 kopeck kopek копейка копейки копеек
    franc: 1 franc chf
    krona: 1 krona krone kronor
    baht: 1 baht บาท
    taka: 1 taka টাকা
    N: 1 ~N ~newton
    J: 1 ~J ~joule; 3600000 kWh kwh; 3600 Wh
    eV: 1 ~eV ~electronvolt
    cal: 1 ~cal ~calorie
    W: 1 ~W ~watt
    horsepower: 1 hp horsepower
    V: 1 ~V ~volt
    ampere: 1 ~A ~amp ~ampere
    ohm: 1 ~ohm
    farad: 1 ~F ~farad
    henry: 1 ~henry henries
    coulomb: 1 ~coulomb
    tesla: 1 ~tesla; 1/10000 gauss
    Hz: 1 ~Hz hz ~hertz; 1000 khz; 1000000 mhz; 1000000000 ghz
    Pa: 1 ~Pa ~pascal; 100000 ~bar; 101325 atm atmosphere
    torr: 1 torr mmhg
    mol: 1 ~mol ~mole
    bit: 1 ~b ~bit; 8 ~B ~byte; 8000 KB; 8000000 mb; 8000000000 gb; 8000000000000 tb
    bit s-1: 1 ~bps
    lumen: 1 ~lumen
    decibel: 1 dB db decibel
"""
_UNCONVERTED = words_in("hogshead dram semester shilling centime centavo peso lux candela rpm psi")  # no other name
_PREFIXES = (
    ("n", "nano", Fraction(1, 10**9)), ("u", "micro", Fraction(1, 10**6)), ("m", "milli", Fraction(1, 1000)),
    ("k", "kilo", Fraction(10**3)), ("M", "mega", Fraction(10**6)), ("G", "giga", Fraction(10**9)),
    ("T", "tera", Fraction(10**12)), ("p", "pico", Fraction(1, 10**12)), ("h", "hecto", Fraction(100)),
)  # fmt: skip
_SYMBOLS = frozenset("nmkMGT")  # prefixes of symbols; "pm" and "us" are words, and µ is spelled micro
_PLURALS = {"inches": "in", "centuries": "century", "feet": "ft", "millennia": "millennium"}
_AFTER_A_BLANK = words_in("m g s h L J N V W")  # single letters that are units after a blank; others are variables
_RAISED = words_in("m")  # of these, the ones whose square is a unit
_PART = re.compile(r"((?:mod|base)\(\d+\)|[^\W\d_]+)(-?[1-9])?")
MAX_PARTS = 4  # names in one unit


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor` base units of its kind, which is spelled like ``m s-1``."""

    factor: Fraction
    kind: str


def _read() -> tuple[dict[str, Unit], dict[str, str]]:
    names = {word: word for word in CONTRASTS | _UNCONVERTED}
    units = {word: Unit(Fraction(1), word) for word in names}
    prefixed: dict[str, str] = {}
    for line in re.split(r"\n    (?=\S)", _TABLE.strip()):
        kind, _, entries = line.partition(":")
        for entry in entries.split(";"):
            factor, *spellings = entry.split()
            canonical = spellings[0].removeprefix("~")
            units[canonical] = Unit(Fraction(factor), kind)
            names.update((spelling.removeprefix("~"), canonical) for spelling in spellings)
            for name in (spelling[1:] for spelling in spellings if spelling[0] == "~"):
                for symbol, word, times in _PREFIXES:
                    units[symbol + canonical] = Unit(times * Fraction(factor), kind)
                    prefixed[word + name] = symbol + canonical
                    if len(name) <= 3 and symbol in _SYMBOLS:
                        prefixed[symbol + name] = symbol + canonical
    return units, prefixed | names


UNITS, _NAMES = _read()


def unit_name(word: str) -> str:
    """The canonical name of the unit that a word spells, in the singular or plural; empty if it spells none."""
    lower = word.lower() if len(word) > 1 else word
    found = _NAMES.get(word) or _NAMES.get(lower) or _PLURALS.get(lower, "")
    if not found and len(lower) > 2 and lower.endswith("s"):
        found = _NAMES.get(lower[:-1], "")
    return found


def is_unit_after(word: str, *, spaced: bool, literal: bool, raised: bool) -> bool:
    """Whether a run of letters after a value spells a unit, and is not a product of variables. `spaced`: a blank is
    between them; `literal`: the value has no letters; `raised`: the letters have a power."""
    if not unit_name(word):
        return False
    if len(word) == 1 and word.isascii():
        return spaced and literal and word in (_RAISED if raised else _AFTER_A_BLANK)
    return spaced or len(word) > 3 or not word.isascii()


@cache
def unit(spelled: str) -> Unit | None:
    """The unit with a spelling like ``m s-1``; None if there is no such unit."""
    factor, powers = Fraction(1), dict[str, int]()
    parts = spelled.split(" ")
    if len(parts) > MAX_PARTS:
        return None
    for part in parts:
        found = _PART.fullmatch(part)
        if found is None or (found[1] not in UNITS and "(" not in found[1]):
            return None
        power, known = int(found[2] or 1), UNITS.get(found[1], Unit(Fraction(1), found[1]))
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
