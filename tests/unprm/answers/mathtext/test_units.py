"""Units and their conversions."""

from fractions import Fraction

import pytest
from scipy import constants

from unprm.answers.mathtext.units import UNITS, unit_name


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
