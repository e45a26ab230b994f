"""Spellings with two readings, and what only looks like a calculation."""

from tests.unprm.answers.support import apart


@apart(
    ["12:00", "1:00", "12", "1"],
    [r"1:2:3:\ldots", r"1:4:9:\ldots"],
    ["1/2x", "1/(2x)", "a/bc", "ac/b"],
    ["1010_2", "1010", "1010_3", "10"],
    ["2 3", "23", "6"],
    ["10-12", "20-22", "-2"],
    ["10 - 12 cm", "20 - 22 cm"],
    ["2020-03-04", "2020-04-03"],
    ["1/2/2020", "2/4/2020"],
    ["555-1234", "-679"],
    ["10-12, 3", "20-22, 3"],
    ["(555) 123-4567", "(555) 123-4568"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
