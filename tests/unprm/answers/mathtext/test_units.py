"""Units and their conversions."""

import pytest
from scipy import constants

from tests.unprm.answers.support import apart, same
from unprm.answers.mathtext.units import UNITS


@same(
    ["10 cm^2", "10", "0.001 m^2"],
    ["5 cents", r"\$0.05", "0.05 dollars", "$0.05"],
    ["10 m/s", "10", r"10\text{ m/s}", r"10\mathrm{m/s}", "10 meters per second", "36 km/h"],
    [r"20^\circ C", "20", "20°C", "20 degrees Celsius"],
    ["60 mph", "88 feet per second", "60 miles per hour"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["3 hours", "3 minutes", "3"],
    ["5 cents", "5 dollars", "5", "5 euros"],
    ["10 cm^2", "10 cm^3", "10", "10 m"],
    ["20°C", "20°F", "20 K", "20"],
    ["30 days", "1 month"],
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
        "knot": constants.knot, "tonne": constants.metric_ton,
    }  # fmt: skip
    assert {name: factor(name) for name in in_base} == pytest.approx(in_base, rel=1e-12)
    parts = {"qt": 4, "pint": 8, "cup": 16, "floz": 128, "tbsp": 256, "tsp": 768}
    assert {name: UNITS["gal"].factor / UNITS[name].factor for name in parts} == parts
