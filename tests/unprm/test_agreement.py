"""Step scores by what the other candidates compute."""

import pytest

from unprm.agreement import LEAST, support

OTHERS = [["so 7"], ["or 7"], ["and 8"]]


def scores(step: str, *others: str, problem: str = "") -> list[float | None]:
    return [*support(problem, [[step], *([other] for other in others or ("7", "7", "8"))])[0]]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("3 + 4 = 7", 2 / 3),
        ("3 + 5 = 8.", 1 / 3),
        ("3 + 6 = 9 apples", 0.0),
        ("x = 7 and y = 8", 1 / 3),
        ("x = 7 and y = 9", 0.0),
        ("so it is 9", None),
        ("= 9 * 2 = 7", 2 / 3),
        ("= 9 + 1", None),
        ("= 9 \\times 2", None),
        ("= (9 - 2) = 7", 2 / 3),
        ("= 9 − 2 = 7", 2 / 3),
        ("= 70", 0.0),
        ("= 7.5", 0.0),
        ("= -7", 0.0),
        ("= - 7", 0.0),
        ("= {7}", 2 / 3),
        ("= \\boxed{7}", 2 / 3),
        ("= \\text{7 apples}", 2 / 3),
        ("= **$7**", 2 / 3),
        ("\\(x = \\$7\\)", 2 / 3),
        ("x ≈ 7", 2 / 3),
        ("x \\approx 7", 2 / 3),
        ("14 / 2 = 14/2", 2 / 3),
        ("", None),
    ],
)
def test_a_step_has_the_share_of_others_with_the_values_after_its_equals_signs(step: str, expected: float) -> None:
    assert scores(step) == [expected and pytest.approx(expected)]


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("1/2", ["0.5", ".50", "\\frac{1}{2}", "½"]),
        ("1,234,567", ["1234567", "1234567.00", "1{,}234{,}567", "１２３４５６７"]),
        ("-2.5", ["-5/2", "-2.50"]),
        ("3", ["3", "6/2"]),
        ("3.75", ["3,75", "3{,}75", "15/4"]),
        ("0.125", ["0,125", "\\frac{1}{8}"]),
    ],
)
def test_equal_forms_are_the_same_value(value: str, forms: list[str]) -> None:
    for one, other in [(value, form) for form in forms] + [(form, value) for form in forms]:
        assert scores(f"x = {one}", f"it is {other}!", "no", "neither") == [pytest.approx(1 / 3)]


@pytest.mark.parametrize("text", ["(3,4)", "(-3,4)", "[3,4]", "\\{3,4\\}", "3,4,5", "3,400"])
def test_a_comma_is_not_decimal_in_a_point_an_interval_a_set_a_list_and_thousands(text: str) -> None:
    assert scores("x = 3.4", f"so {text}", "no", "neither") == [0.0]


def test_a_division_that_is_carried_out_is_no_fraction() -> None:
    assert scores("= 7", "14/2 = 6", "14 / 2.0 = 6", "it is 14/2") == [pytest.approx(1 / 3)]


def test_what_the_problem_gives_is_not_computed() -> None:
    problem = "Of 7 trays with 1,000 rolls 1/2 is sold."
    assert scores("a = 7, b = 1000, c = 0.5", problem=problem) == [None]
    assert scores("a = 7, b = 9", problem=problem) == [0.0]


def test_a_candidate_is_no_other_and_its_steps_count_together() -> None:
    ((first, second), *_) = support("", [["a = 1. 1!", "1 = 1"], ["2"], ["1"], ["0", "1 1"]])
    assert first == second == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "text",
    [
        "= 1" * 9,
        "= " + "9" * 5000,
        "=1/0",
        "= 1" + ",111" * 5000,
        "= 1,2,3",
        "1.2.3.4 = 5.6.7",
        "= .",
        "=\\frac{1.}{,}",
    ],
)
def test_strange_numbers_are_no_error(text: str) -> None:
    scores(text, text, text, text)


def test_a_candidate_without_steps_supports_nothing() -> None:
    assert support("", [["= 7"], ["7"], ["8"], []]) == [[1 / 3], [None], [None], []]


def test_fewer_candidates_are_refused_with_their_number() -> None:
    with pytest.raises(ValueError, match=f"expected at least {LEAST} candidates, got 3"):
        support("", OTHERS)
