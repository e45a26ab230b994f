"""Where a word problem's solution first goes wrong, by its equations and those of the gold solution."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from training import sources
from training.smol import questions
from training.smol.equations import equations, evaluate, parse
from training.smol.labels import balanced
from training.smol.origins import EASY
from training.smol.slips import slips
from training.smol.truth import Gold

SLICE = Path(__file__).parents[2] / "data" / "smol"
PENS = {"id": "pens", "problem": "Ann has 3 boxes of 8 pens. She gives 5 pens away. How many pens are left?",
        "answer": "19", "equation": "( ( 3 * 8 ) - 5 )"}  # fmt: skip
CLIPS = {
    "idx": 0, "answer": "72", "solution":
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips in all.\n#### 72",
    "question": "Natalia sold clips to 48 friends in April, and then she sold half as many in May. How many in all?",
}  # fmt: skip


def test_equations_are_found_in_the_text_of_a_step():
    found = list(equations("She pays 3 x $4 = $12, and then ($20 - $12) / 2 = $4 each; 5 = 5 is no operation."))
    assert [str(equation) for equation in found] == ["3 * 4 = 12", "(20 - 12) / 2 = 4"]
    assert all(equation.holds for equation in found)
    assert not next(equations("2 + 2 = 5")).holds


@pytest.mark.parametrize("expression", ["2 ** 9", "__import__('os')", "1 if 1 else 2", "a + 1", "1 +", "(1).real"])
def test_an_expression_is_numbers_and_four_operations_only(expression):
    assert parse(expression) is None


def test_a_division_by_zero_has_no_value():
    assert evaluate(parse("1 / (2 - 2)")) is None


def test_gold_solutions_are_right():
    pens, clips = questions.easy(PENS), questions.gsm8k(CLIPS)
    assert pens.steps == ("3 * 8 = 24", "24 - 5 = 19", "The answer is \\boxed{19}.")
    assert clips.steps[0] == "Natalia sold 48/2 = 24 clips in May."
    for question in (pens, clips):
        assert question.gold().first_error(question.steps) is None


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        (("8 * 3 = 24", "24 - 5 = 19", "The answer is \\boxed{19}."), None),  # the operands in another order
        (("3 * 8 - 5 = 19", "The answer is \\boxed{19}."), None),  # both operations in one step
        (("5 - 3 = 2", "3 * 8 = 24", "24 - 5 = 19", "The answer is \\boxed{19}."), 0),  # leads nowhere
        (("3 * 8 = 23", "23 - 5 = 18", "The answer is \\boxed{18}."), 0),  # a slip
        (("3 + 8 = 11", "11 - 5 = 6", "The answer is \\boxed{6}."), 0),  # another operation
        (("3 * 8 = 24", "24 + 5 = 29", "The answer is \\boxed{29}."), 1),
        (("3 * 8 = 24", "24 - 5 = 19", "The answer is \\boxed{24}."), 2),  # right, but not the answer
        (("3 * 8 = 24", "24 - 5 = 19"), 1),  # no answer
    ],
)
def test_first_errors(steps, wrong):
    assert questions.easy(PENS).gold().first_error(steps) == wrong


def test_the_right_number_by_accident_is_wrong():
    """Numbers are variables of the question: 2 + 2 is not 2 * 2, though both are 4."""
    row = {"id": "two", "problem": "2 bags hold 2 apples each. How many apples?", "answer": "4", "equation": "2 * 2"}
    product = questions.easy(row).gold()
    assert product.first_error(("2 * 2 = 4", "The answer is \\boxed{4}.")) is None
    assert product.first_error(("2 + 2 = 4", "The answer is \\boxed{4}.")) == 0


def test_the_equations_and_a_reader_find_the_same_first_errors():
    """A reader of a hundred solutions named the same step, or an earlier one where the equations still saw a detour, or
    where only the words are wrong."""
    rows = {str(row["id"]): row for _, row in sources.from_file(EASY, dict[str, Any])}
    read = json.loads((SLICE / "by_hand.json").read_text())
    solutions = {solution["id"]: solution for _, solution in sources.from_file(SLICE / "easy.jsonl", dict[str, Any])}
    golds = {name: questions.easy(rows[name.partition("#")[0]]).gold() for name in read}
    found = [golds[name].first_error(solutions[name]["steps"]) for name in read]
    both = [(-1 if index is None else index, label) for index, label in zip(found, read.values(), strict=True)]
    assert len(both) == 100
    assert sum(index == label for index, label in both) == 95
    assert all(index > label for index, label in both if index not in (label, -1))


def test_a_gold_solution_must_lead_to_its_answer():
    with pytest.raises(ValueError, match="lead to its answer"):
        Gold.read("1 and 2", tuple(equations("1 + 2 = 3")), 4)
    assert questions.gsm8k(CLIPS | {"solution": CLIPS["solution"].replace("#### 72", "#### 70")}) is None
    on_the_hub = {"idx": 0, "question": CLIPS["question"], "answer": CLIPS["solution"]}
    assert questions.gsm8k(on_the_hub).steps == questions.gsm8k(CLIPS).steps
    assert questions.easy(PENS | {"answer": "20"}) is None


def test_a_variant_has_other_numbers_and_the_same_way():
    original = questions.easy(PENS)
    made = questions.variant(original, 0, seed=0)
    assert made.problem == questions.variant(original, 0, seed=0).problem
    assert made.problem != original.problem
    assert made.gold().first_error(made.steps) is None
    assert original.gold().first_error(made.steps) == 0


def test_near_matches_stay_in_one_part_and_reserved_ones_in_none():
    pens, clips = questions.easy(PENS), questions.gsm8k(CLIPS)
    twins = [questions.easy(PENS | {"id": f"twin-{k}"}) for k in range(8)]
    reserved = clips.problem.replace("48", "50")
    parts = questions.split([pens, *twins, clips], [], [reserved])
    assert sorted(len(part) for part in parts.values()) == [0, 0, 0, 9]
    # a question for tests only is none if a stage may train on its twin
    (home,) = (part for part, found in parts.items() if found)
    measured = questions.split([pens], [twins[0], clips], [])["others"]
    assert (twins[0] in measured) == (home == "test")
    assert clips in measured


def test_planted_errors_are_the_first():
    for question in (questions.easy(PENS), questions.gsm8k(CLIPS)):
        made = list(slips(question, random.Random(0)))
        assert len(made) == len(question.steps)
        for steps in made:
            end = len(steps) - 1
            assert steps[:end] == question.steps[:end]
            assert steps[end] != question.steps[end]
            closed = steps if end == len(question.steps) - 1 else (*steps, question.steps[-1])
            assert question.gold().first_error(closed) == end


def test_the_equations_of_a_solution_alone():
    clips = questions.bare(questions.gsm8k(CLIPS))
    assert clips.steps == ("48 / 2 = 24", "48 + 24 = 72", "The answer is \\boxed{72}.")
    assert clips.gold().first_error(clips.steps) is None


def test_labels_are_those_of_the_first_solutions():
    judged = [(("right", "end"), None), (("frequent",), 0), (("seldom",), 0), (("right", "wrong"), 1)]
    made = {solution.steps: solution.labels for solution in balanced("problem", judged)}
    assert made == {("right", "end"): (True, True), ("right", "wrong"): (None, False), ("frequent",): (False,)}


def test_labels_are_even_at_every_place():
    question = questions.easy(PENS)
    judged = [(question.steps, None), *((steps, len(steps) - 1) for steps in slips(question, random.Random(0)))]
    judged += [(("3 + 8 = 11",), 0), (("3 - 8 = 11",), 0)]  # more wrong steps than right ones
    made = list(balanced(question.problem, judged))
    labels = [(place, label) for solution in made for place, label in solution.known.items()]
    assert sorted(labels) == [(place, label) for place in range(3) for label in (False, True)]
    for solution in made:
        assert all(label in (True, None) for label in solution.labels[:-1])
