"""Training data from public step labels: what each wrong solution brings with it."""

import json
import random
from collections import Counter

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from research.mix import GoldSolution, MixedSolution, mix, slip

QUESTION = "Ann has 3 boxes with 12 pens each and gives 6 pens away. How many are left?"
GOLD = GoldSolution(QUESTION, "She has 3*12=<<3*12=36>>36 pens.\n\nSo 36-6=<<36-6=30>>30 are left.\n#### 30", "30")
WRONG = MixedSolution(QUESTION, ["3 + 12 = 15.", "15 - 6 = 9."], [False, False])


def test_gold_solutions_have_no_calculator_and_state_their_answer():
    assert GOLD.steps == ["She has 3*12=36 pens.", "So 36-6=30 are left. The answer is 30."]


def test_a_slip_changes_one_number_of_the_last_step():
    made = [slip(QUESTION, GOLD.steps, random.Random(seed)) for seed in range(50)]
    for steps in filter(None, made):
        *before, wrong = steps
        assert before == GOLD.steps[: len(before)]
        assert wrong != GOLD.steps[len(before)]
    assert {len(steps) for steps in made if steps} == {1, 2}
    assert slip(QUESTION, ["Nothing is computed here."], random.Random(0)) is None


def test_every_number_that_repeats_the_result_slips_with_it():
    made = {tuple(slip("No number.", ["2+3=5, so it is 5."], random.Random(seed)) or ()) for seed in range(30)} - {()}
    assert made
    for (step,) in made:
        after = step.removeprefix("2+3=").removesuffix(".")
        assert len(set(after.split(", so it is "))) == 1


def test_an_error_brings_a_right_solution_and_a_slip_once_a_question():
    rows = list(mix([WRONG, WRONG], [], [], [], [], gold={QUESTION: GOLD.steps}, characters=(0, 0, 0)))
    assert Counter(tuple(row.labels) for row in rows if row.steps[0] == "3 + 12 = 15.") == {(False,): 2}
    right = [row for row in rows if row.steps == GOLD.steps]
    assert [row.labels for row in right] == [[True, True]]
    slips = [row for row in rows if row.steps[0] != "3 + 12 = 15." and row.steps != GOLD.steps]
    assert len(slips) == 1
    assert slips[0].labels[-1] is False
    assert not any(slips[0].labels[:-1])  # the steps before it are judged in the right solution


def test_parts_end_with_the_row_that_reaches_their_characters():
    rows = [MixedSolution(f"p{k}", ["x" * 10], [True]) for k in range(9)]
    branches = [MixedSolution("p0", ["y"], [False])] * 6
    assert len(list(mix([], rows, [], [], [], gold={}, characters=(30, 0, 0)))) == 4
    made = list(mix([], [], [], rows[:1], branches, gold={}, characters=(0, 0, 0)))
    assert [row.labels for row in made] == [[True], *[[False]] * 4]


@pytest.mark.parametrize("broken", [None, '{"problem": "p", "steps": ["s"]}'])
def test_the_command_reads_files_and_names_a_broken_line(broken, tmp_path):
    files = {}
    for name in ("errors", "model-written", "competition", "solutions", "branches"):
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text(json.dumps({"problem": QUESTION, "steps": ["3 + 12 = 15."], "labels": [False]}))
    files["gold"] = tmp_path / "gold.jsonl"
    files["gold"].write_text(json.dumps({"question": QUESTION, "solution": GOLD.solution, "answer": "30"}))
    if broken:
        files["errors"].write_text(broken)
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    done = CliRunner().invoke(app, ["mix", "--output", str(tmp_path / "mix.jsonl"), *options])
    if broken:
        assert "errors.jsonl" in str(done.exception)
        return
    rows = [json.loads(line) for line in (tmp_path / "mix.jsonl").read_text().splitlines()]
    assert {"problem", "steps", "labels"} == set(rows[0])
