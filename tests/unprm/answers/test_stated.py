"""The value that a statement begins with."""

import pytest

from unprm.answers.extraction import extract


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("762 M&Ms", "762"),
        ("14 more pieces of candy than Ginger", "14"),
        ("$25,000/year", "$25,000"),
        ("6th place", "6"),
        ("2600g", "2600 g"),
        ("22 times", "22"),
        ("1000 m^2", "1000 m^2"),
        ("12 square feet of cloth", "12 square feet"),
        ("60 miles per hour on the way back", "60 miles per hour"),
        ("10 m/s", "10 m/s"),
        ("$2 per hour that she spends there", "$2"),
        ("-$160.00 in all", "-$160.00"),
        ("350$ left after all expenses", "350$"),
        ("17 stickers left", "17"),
        ("60% of the students", "60%"),
        ("-10°F", "-10°F"),
        ("118 000", "118 000"),
        ("5/8 of the cake", "5/8"),
        ("1 1/2 cups", "1 1/2 cups"),
        ("5 GHz of bandwidth", "5 GHz"),
        ("12 m/s upward", "12 m/s upward"),
        ("5 nautical miles away", "5 nautical miles"),
        ("5 heads in a row", "5 heads"),
        ("5 in a row", "5"),
        ("3 square units of it", "3 square units"),
        ("3 and a half hours", "3 and a half hours"),
        ("5 million dollars in total", "5 million dollars"),
        ("7 dozen eggs in 4 weeks", "7 dozen"),
        ("2 pairs of shoes", "2 pairs"),
        ("4:30 p.m. on Monday", "4:30 p.m."),
        ("8 rows of 5 stars on the flag", "8"),
        ("3 30-minute episodes on Wednesday", "3"),
        ("23 pounds of stuffing to make 4 beds and 3 pillows", "23 pounds"),
        ("36 more signatures to reach their goal of 100", "36"),
        ("130 for the first two weeks", "130"),
        ("42, since 40 + 2 = 42", "42"),
        ("42 - as we have seen", "42"),
        ("2 hours (120 minutes)", "2 hours"),
        ('67" tall', "67"),
        ("approximately 9.33 liters", "9.33 liters"),
        ("still 16", "16"),
        ("Jim is 14 years old", "14 years"),
        ("They spent $15 on lemons", "$15"),
        ("$\\frac{1}{2}$ of the cake", r"\frac{1}{2}"),
        ("\\(x^2\\) for all x", "x^2"),
        ("$10$ cm", "$10$ cm"),
        ("$5$ million", "$5$ million"),
    ],
)
def test_a_value_ends_where_prose_goes_on(statement, answer):
    assert extract(f"So the answer is #### {statement}.") == answer
    assert extract(f"**Answer:** {statement}") == answer


@pytest.mark.parametrize(
    "statement",
    [
        "6 red and 4 blue",
        "$6$ red and $4$ blue",
        "3 boys, 5 girls",
        "5 apples and one orange",
        "2 feet, 3 inches",
        "1 hour and 30 minutes",
        "5'10",
        "10-12",
        "5 to 10 cm",
        "2020-03-04",
        "5 March",
        "5th of March",
        "3:2",
        "5 of 8",
        "1 in 6",
        "$5 and $10",
        "1, 2, 3, ...",
        "$x=5$ or $x=-5$",
        "5 or more",
        "5 units to the left",
        "5 (mod 7)",
        "0.\\overline{3}",
        "2x+5",
        "15x-80",
        "3 x 10^8",
        "5!",
        "21 - 13 = 8",
        "5 combinations * 1000 pages = 5000 pages",
        "(1, 2)",
        "x = 5",
        "the total is not 5",
        "No solution",
        "Route 66",
    ],
)
def test_the_rest_of_a_statement_stays_where_it_is_part_of_the_value(statement):
    assert extract(f"The answer is {statement}") == statement


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("5 years older", "5 years younger"),
        ("5 more apples", "5 fewer apples"),
        ("3 cm taller", "3 cm shorter"),
        ("5 wins", "5 losses"),
        ("10% increase in sales", "10% decrease in sales"),
        ("3 blocks north", "3 blocks south"),
        ("5 dollars each", "5 dollars in total"),
        ("3 a.m. on Monday", "3 p.m. on Monday"),
        ("3 hours of work", "3 minutes of work"),
        ("5 cents left", "5 dollars left"),
    ],
)
def test_no_cut_makes_two_values_one(left, right):
    assert extract(f"The answer is {left}.") != extract(f"The answer is {right}.")
