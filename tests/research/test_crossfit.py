"""Settings chosen on one half of the questions and judged on the other, by hand and on recorded pools."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from research import crossfit
from research.__main__ import app
from tests.support import TEST_DATA, tables
from training.cli.evaluate import app as evaluate
from training.evaluate import judging
from training.evaluate.judging import JudgedCandidates
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import REWARD_STRATEGIES, VOTES

SAME = "+0.0 [+0.0, +0.0], p = 1.000"
TRIED = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], dtype=float)
"""Of three settings, whether the vote is right on four questions."""


def _splits(*firsts):
    return np.array([[name in first for name in "abcd"] for first in firsts])


def test_each_half_is_judged_with_what_is_best_on_the_other():
    """The first setting is perfect on a and b and wrong elsewhere, the second the other way round."""
    held_out = crossfit.cross_fit(TRIED, _splits("ab"))
    assert held_out.outcomes.tolist() == [0, 0, 0, 0]
    assert held_out.best == {0: 1, 1: 1}


def test_several_splits_are_averaged_and_the_first_of_equal_settings_is_best():
    # on a and c the third setting is best, on b and d the first two are equal: a and c are judged with the first
    assert crossfit.cross_fit(TRIED, _splits("ac")).outcomes.tolist() == [1, 0, 0, 0]
    held_out = crossfit.cross_fit(TRIED, _splits("ab", "ac"))
    assert held_out.outcomes.tolist() == [0.5, 0, 0, 0]
    assert held_out.best == {0: 2, 1: 1, 2: 1}


def test_sums_in_another_order_break_no_tie():
    tried = np.array([[0.3, 0.2, 0.1, 0], [0.1, 0.2, 0.3, 0]])  # 0.6 and 0.6000000000000001
    assert crossfit.cross_fit(tried, _splits("abc")).best == {0: 2}


def _question(number, rewards=(0.5, 0.9)):
    """Five of ten candidates are right, three agree on a wrong answer; `rewards`: of the former, of the others."""
    classes = (0,) * 5 + (1,) * 3 + (2, 3)
    right = tuple(name == 0 for name in classes)
    scores = tuple(((rewards[0] if each else rewards[1]),) for each in right)
    return JudgedCandidates(f"q{number}", classes, right, tuple(each[0] for each in scores), scores)


def test_a_setting_that_helps_everywhere_is_found_and_held_against_majority_and_the_default():
    # of best_of_majority only the share of 0.4 leaves out the three; min-max of counts and rewards: 1 and 0 of the
    # right answer, 0.5 and 1 of that of the three, which the default of wrf elects
    found = crossfit.measure([_question(number) for number in range(20)])
    vote = found["best_of_majority"]
    assert (vote.default.mean, vote.held_out.mean) == (0, 1)
    assert vote.best == {"min, min_share 0.4": 1}
    assert (vote.against_majority, vote.against_default) == (SAME, "+100.0 [+100.0, +100.0], p < 0.001")
    assert (found["prm"].held_out.mean, found["prm"].against_default) == (0, SAME)
    assert (found["majority"].against_majority, found["majority"].best) == ("", {})
    assert (found[DEFAULT_STRATEGY].default.mean, found[DEFAULT_STRATEGY].held_out.mean) == (0, 1)


def test_settings_are_judged_where_they_were_not_chosen():
    """The share of 0.4 is best on both questions together, but the second alone is right with any: the default is
    chosen on it, and the first judged with that."""
    found = crossfit.measure([_question(0), _question(1, rewards=(0.9, 0.5))])["best_of_majority"]
    assert (found.default.mean, found.held_out.mean) == (0.5, 0.5)
    assert set(found.best.values()) == {0.5}


def test_every_grid_begins_with_the_defaults_and_has_none_twice():
    for vote in VOTES.values():
        for name, values in vote.grid.items():
            assert values[0] == vote.terms.model_fields[name].default
            assert len(set(values)) == len(values)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three judged pools: step scores, rewards as numbers, and the latter with confidences."""
    place = tmp_path_factory.mktemp("runs")
    rows = [
        json.loads(line) for line in (TEST_DATA / "votes" / "qwen_math_cot_rm.jsonl").read_text("utf-8").splitlines()
    ]
    for row in rows:
        for number, candidate in enumerate(row["candidates"]):
            candidate["confidence"] = 1 / (1 + number)
    sure = place / "sure.jsonl"
    sure.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    pools = {
        "steps": (TEST_DATA / "votes" / "math500_pool_rlhflow.jsonl", "step_scores"),
        "numbers": (TEST_DATA / "votes" / "qwen_math_cot_rm.jsonl", "rm_score"),
        "sure": (sure, "rm_score"),
    }
    for name, (path, reward) in pools.items():
        arguments = ["best-of-n", str(path), "--reward", reward, "--output", str(place / name)]
        result = CliRunner().invoke(evaluate, arguments)
        assert result.exit_code == 0, result.output
    return [str(place / name) for name in pools]


def test_one_table_has_every_vote_on_every_pool_that_it_can_be_judged_on(runs, tmp_path):
    output = tmp_path / "votes.md"
    result = CliRunner().invoke(app, ["votes", *runs, "--output", str(output)])
    assert result.exit_code == 0, result.output
    table = output.read_text("utf-8")
    assert result.output == table
    (rows,) = tables(table)
    cells = {(row["vote"], row["pool"]): row for row in rows}
    by_confidence = [name for name, vote in VOTES.items() if vote.signal == "confidence"]
    everywhere = [(vote, pool) for vote in REWARD_STRATEGIES for pool in ("steps", "numbers", "sure")]
    assert list(cells) == [*everywhere, *((vote, "sure") for vote in by_confidence)]
    assert cells["majority", "steps"]["by default"].startswith("57.2 (")
    assert cells["prm", "numbers"]["most often best"] == ""
    assert "min_share" in cells["best_of_majority", "numbers"]["most often best"]
    assert all(row["against majority, points"] for (vote, _), row in cells.items() if vote != "majority")


def test_the_table_is_the_same_at_every_run(runs):
    (steps, *_) = runs
    judged = judging.read_judged(Path(steps))
    assert crossfit.measure(judged) == crossfit.measure(judged)


def test_votes_are_taken_among_as_many_candidates_as_asked_for(runs, tmp_path):
    """Among one, every vote elects it: how right it is does not depend on the vote; nor on what comes first."""
    output = tmp_path / "votes.md"
    arguments = ["votes", runs[1], "--output", str(output), "--candidates"]
    result = CliRunner().invoke(app, [*arguments, "1"])
    assert result.exit_code == 0, result.output
    (rows,) = tables(output.read_text("utf-8"))
    judged = judging.read_judged(Path(runs[1]))
    mean = sum(sum(each.correct) / len(each.correct) for each in judged) / len(judged)
    assert {row["by default"].partition(" ")[0] for row in rows} == {f"{100 * mean:.1f}"}
    result = CliRunner().invoke(app, [*arguments, "9"])
    assert "it has 8 candidates, votes among 9 were asked for" in str(result.exception)


@pytest.mark.parametrize(("rows", "complaint"), [(None, "there is no candidates.jsonl"), (1, "two questions or more")])
def test_a_directory_without_enough_judged_questions_is_refused(tmp_path, rows, complaint):
    if rows:
        (tmp_path / "candidates.jsonl").write_text(
            '{"id": "a", "classes": [0], "correct": [true], "rewards": [0.5], "scores": null}\n', "utf-8"
        )
    result = CliRunner().invoke(app, ["votes", str(tmp_path), "--output", str(tmp_path / "votes.md")])
    assert result.exit_code != 0
    assert complaint in str(result.exception)
