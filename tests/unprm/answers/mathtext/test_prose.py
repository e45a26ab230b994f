"""What surrounds the mathematics."""

from tests.unprm.answers.support import same


@same(
    ["Option A", "A", r"\text{Option A}", "choice (A)"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}
