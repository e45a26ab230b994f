"""The domain of the embedded model: stories, their parser, the exact checker."""

import hashlib
import random

import pytest

from research.mini.checker import first_error, labels
from unprm.mini.domain import LARGEST, MAX_OPERATIONS, calculate, knows, parse
from unprm.mini.storyteller import DEMANDING, EVERYDAY, MIN_OPERATIONS, generate

MIA = "Mia has 20 coins. Tom has 4 more coins than Mia. Mia buys 3 bags with 5 coins in each bag. Ben has 7 cards. "
TOTAL = MIA + "How many coins do Mia and Tom have together?"


def test_generated_problems_read_back_as_they_were_made():
    rng = random.Random(1)
    for _ in range(300):
        problem = generate(rng)
        assert parse(problem.text) == problem
        assert knows(problem.text)
        assert MIN_OPERATIONS <= len(problem.operations) <= MAX_OPERATIONS
        for operation in problem.operations:
            left, right = operation.left.value, operation.right.value
            assert operation.value == calculate(operation.symbol, left, right) <= LARGEST
        assert first_error(problem, problem.solution()) is None


@pytest.mark.parametrize(
    ("style", "digest"),
    [
        (EVERYDAY, "892d9685ed8c475f"),
        (DEMANDING, "3c284b1500a0f6f8"),
    ],
)
def test_a_seed_always_gives_the_same_problems_and_solutions(style, digest):
    """The embedded model's figures, and the problems that its training left out, are of these."""
    found = hashlib.sha256()
    for seed in range(3):
        rng = random.Random(seed)
        for problem in (generate(rng, style) for _ in range(200)):
            found.update("\n".join([problem.text, *problem.solution(), str(problem.asides)]).encode())
    assert found.hexdigest()[:16] == digest


def test_demanding_problems_are_longer_and_more_entangled():
    def measure(style):
        rng = random.Random(4)
        problems = [generate(rng, style) for _ in range(400)]
        compared = sum(any(w in p.text for w in ("fewer", " more", "times as many")) for p in problems)
        return sum(len(p.operations) for p in problems) / 400, compared

    (short, plain), (long, entangled) = measure(EVERYDAY), measure(DEMANDING)
    assert 3 < short < 4.3 < long < 5.5
    assert plain < entangled


def test_a_problem_by_hand():
    problem = parse(TOTAL)
    assert [str(o) for o in problem.operations] == [
        "20 + 4 = 24",
        "3 * 5 = 15",
        "20 + 15 = 35",
        "35 + 24 = 59",
    ]
    assert (problem.answer, problem.asides) == (59, (7,))


def test_a_comparison_from_the_other_side():
    problem = parse(
        "Tom has 30 coins. Tom has 4 more coins than Mia. Mia loses 6 coins. How many coins does Mia have now?"
    )
    assert [str(o) for o in problem.operations] == ["30 - 4 = 26", "26 - 6 = 20"]


def test_operations_that_the_answer_does_not_need_are_left_out():
    problem = parse(MIA + "How many coins does Mia have now?")
    assert [str(o) for o in problem.operations] == ["3 * 5 = 15", "20 + 15 = 35"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Mia eats 20 coins.", "not a sentence of the unprm-mini domain: 'Mia eats 20 coins.'"),
        ("Mia has 20 coins. Mia loses", "not a sentence"),
        ("Mia has 20 coins.", "does not end with a question"),
        ("Mia has 20 coins. How many coins does Mia have now?", "takes an operation"),
        ("Mia loses 5 coins. How many coins does Mia have now?", "does not say how many coins 'Mia' has"),
        ("Mia has 20 coins. Mia splits the coins into 3 equal piles and keeps one pile. "
         "How many coins does Mia have now?", "20 / 3 is not an integer"),
    ],
)  # fmt: skip
def test_texts_outside_the_domain_are_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "What is 3 + 4?",
        "Mia has 20 coins.",
        "Mia has 2000 coins. Mia loses 5 coins. How many coins does Mia have now?",  # too large a number
        "Mia has 600 coins. Mia finds 600 coins. How many coins does Mia have now?",  # too large an answer
        "Mia has 20 coins. Mia loses 25 coins. How many coins does Mia have now?",  # less than nothing
        "Mia has 20 coins. " + "Mia finds 2 coins. " * 9 + "How many coins does Mia have now?",  # too long a chain
        "Mia walks 10 steps. " * 250 + TOTAL,  # longer than the window
    ],
)
def test_what_the_model_was_never_shown_it_does_not_know(text):
    assert knows(TOTAL)
    assert not knows(text)


RIGHT = ["Step 1: 20 + 4 = 24.", "Step 2: 3 * 5 = 15.", "Step 3: 20 + 15 = 35.",
         "Step 4: 35 + 24 = 59. The answer is \\boxed{59}."]  # fmt: skip


def test_right_solutions_in_another_order_and_form():
    problem = parse(TOTAL)
    other = ["5 × 3 = 15", "15 + 20 = 35", "Tom has 4 + 20 = 24 coins", "24 + 35 = 59, so \\boxed{59}"]
    assert first_error(problem, RIGHT) is None
    assert first_error(problem, other) is None
    assert first_error(problem, [*RIGHT[:3], "35 + 24 = 59", "The answer is \\boxed{59}."]) is None


@pytest.mark.parametrize(
    ("index", "step"),
    [
        (0, "Step 1: 20 + 4 = 25."),  # wrong result
        (0, "Step 1: 20 - 4 = 16."),  # wrong operation
        (0, "Step 1: 20 + 7 = 27."),  # a number of the text that does not belong here
        (2, "Step 3: 24 + 15 = 39."),  # the wrong person's
        (1, "Step 2: 20 + 15 = 35."),  # an operand that has not been derived
        (3, "Step 4: 35 + 24 = 59. The answer is \\boxed{58}."),
        (3, "Step 4: The answer is 59."),  # nothing to check
        (1, "Step 2: 3 * 5 = 155."),
    ],
)
def test_wrong_steps_are_found(index, step):
    solution = [*RIGHT[:index], step, *RIGHT[index + 1 :]]
    problem = parse(TOTAL)
    assert first_error(problem, solution) == index
    assert labels(problem, solution) == [True] * index + [False] * (4 - index)
