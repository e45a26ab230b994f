"""The words after a value."""

from tests.unprm.answers.support import apart


@apart(
    ["60 pages per minute", "60 pages per hour", "60"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
