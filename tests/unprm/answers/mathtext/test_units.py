"""Units and their conversions."""

from fractions import Fraction

import pytest
from scipy import constants

from tests.unprm.answers.support import apart, same
from unprm.answers.mathtext.units import UNITS, unit_name


@same(
    ["10 cm^2", "10", "0.001 m^2"],
    ["5 cents", r"\$0.05", "0.05 dollars", "$0.05"],
    ["10 m/s", "10", r"10\text{ m/s}", r"10\mathrm{m/s}", "10 meters per second", "36 km/h"],
    [r"20^\circ C", "20", "20°C", "20 degrees Celsius"],
    ["60 mph", "88 feet per second", "60 miles per hour"],
    ["5 GHz", "5000 MHz", r"5\text{ gigahertz}"],
    ["5 MW", "5000 kW", "5 megawatts"],
    ["5 µm", "0.005 mm", "5 micrometers"],
    ["5 m/s", r"5\,\mathrm{m\,s^{-1}}", r"5\text{ m s}^{-1}"],
    ["5 км", "5000 м", "5 kilómetros", "5公里"],
    ["3小时", "180分钟", "3 horas", "3 Stunden", "3 hours"],
    ["18个", "18", "18명", "18 manzanas"],
    ["5 correct answers", "5"],
    ["6 s^2", "6s^2"],
    [r"\pi r^2 h", r"r^2h\pi", r"\pi h r^{2}"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["3 hours", "3 minutes", "3"],
    ["5 cents", "5 dollars", "5", "5 euros"],
    ["10 cm^2", "10 cm^3", "10", "10 m"],
    ["20°C", "20°F", "20 K", "20"],
    ["30 days", "1 month"],
    ["5 GHz", "5 MHz", "5 mHz", r"5\text{ MeV}", r"5\text{ GeV}"],
    ["5 nm", "5 µm", "5 mm", "5 furlongs", "5 miles", "5 nautical miles"],
    ["5 MB", "5 GB", "5 megabits", "5 Mbps"],
    ["5 días", "5 semanas", "5 heures", "5 Minuten", "5 секунд", "5 年"],
    ["5 heads", "5 tails"],
    ["5 m/s upward", "5 m/s downward"],
    ["$5 discount", "$5 surcharge"],
    [r"\pi r^2 h", r"\pi r^2"],
    ["3 m + 2 s", "3m + 2"],
    ["6 s^2", "6", "6 s^3"],
    [r"2\pi L", r"2\pi"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))


def test_conversions_are_those_that_scipy_has():
    def factor(name):
        return float(UNITS[name].factor)

    in_base = {
        "in": constants.inch, "ft": constants.foot, "yd": constants.yard, "mi": constants.mile, "lb": constants.pound,
        "oz": constants.oz, "gal": constants.gallon, "floz": constants.fluid_ounce, "acre": constants.acre,
        "hectare": constants.hectare, "L": constants.liter, "h": constants.hour, "day": constants.day,
        "week": constants.week, "mph": constants.mph, "kmh": constants.kmh,
        "knot": constants.knot, "tonne": constants.metric_ton, "nmi": constants.nautical_mile,
        "ly": constants.light_year,
        "au": constants.au, "angstrom": constants.angstrom, "stone": constants.stone, "troyounce": constants.troy_ounce,
        "longton": constants.long_ton, "grain": constants.grain, "carat": constants.carat, "atm": constants.atm,
        "bar": constants.bar, "kWh": constants.kilo * constants.hour, "km": constants.kilo, "us": constants.micro,
    }  # fmt: skip
    assert {name: factor(name) for name in in_base} == pytest.approx(in_base, rel=1e-12)
    parts = {"qt": 4, "pint": 8, "cup": 16, "floz": 128, "tbsp": 256, "tsp": 768}
    assert {name: UNITS["gal"].factor / UNITS[name].factor for name in parts} == parts
    feet = {"mi": 5280, "furlong": 660, "chain": 66, "rod": 16.5, "fathom": 6, "cubit": 1.5, "league": 3 * 5280}
    assert {name: UNITS[name].factor / UNITS["ft"].factor for name in feet} == feet
    assert UNITS["hand"].factor == 4 * UNITS["in"].factor
    assert UNITS["bushel"].factor == 4 * UNITS["peck"].factor == Fraction("2150.42") * UNITS["in"].factor ** 3


@pytest.mark.parametrize(
    ("word", "name"), [("kilometers", "km"), ("MHz", "MHz"), ("mW", "mW"), ("MW", "MW"), ("pm", ""), ("us", "")]
)
def test_prefixes(word, name):
    assert unit_name(word) == name
