"""Values with units in a tree."""

from tests.unprm.answers.support import apart, same


@same(
    [r"10\%", "10", "10 percent"],
    ["90^\\circ", "90", r"90^{\circ}", "90°", "90 degrees", r"\angle ABC = 90^\circ"],
    ["1 hour 30 minutes", "90 minutes", "1.5 hours", "1 hour and 30 minutes", r"1\text{ hour }30\text{ minutes}", "90"],
    ["2 feet 3 inches", "27 inches", "2 feet, 3 inches"],
    [r"\frac{\pi}{2}\text{ radians}", "90°"],
    ["17.5%", r"17\frac12\%", "17.5"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["10%", "0.1"],
    ["2 feet, 3 inches", "2 inches, 3 feet"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
