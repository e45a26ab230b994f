"""What follows a value: units, and nouns, which are dropped unless there are several."""

from tests.unprm.answers.support import apart, same


@same(
    [r"\$10", "10", "10.0", r"10\text{ dollars}", r"\$10.00", "2*5"],
    ["$25,000/year", r"\$25{,}000\text{ per year}", "25000"],
    ["3 boys and 5 girls", "5 girls and 3 boys", r"3\text{ boys and }5\text{ girls}"],
    ["5 apples", "5", r"5\text{ oranges}", "five apples", r"\text{five}", "5 in total", "5 apples over the three days"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    ["10cm", "10", "10m", "10 m s"],
    ["3 boys and 5 girls", "5 boys and 3 girls"],
    ["3 cups of flour and 2 cups of sugar", "2 cups of flour and 3 cups of sugar"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
