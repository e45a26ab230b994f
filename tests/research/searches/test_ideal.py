"""What the searches find with perfect rollouts, on solutions whose first errors are known."""

import json

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from tests.support import tables

STEPS = ["one", "two", "three", "four"]


def _table(tmp_path, *solutions):
    """The cells of both tables by the name in their first column. Each solution: the surprisals of its steps, the last
    of which has two tokens, and the index of its first error."""
    rows = [
        {"problem": f"problem {k}", "steps": STEPS, "first_error": error,
         "logprobs": [-surprisal for surprisal in surprisals] + [0.0], "ends": [1, 2, 3, 5]}
        for k, (surprisals, error) in enumerate(solutions)
    ]  # fmt: skip
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    result = CliRunner().invoke(app, ["ideal", str(labels)])
    assert result.exit_code == 0, result.output
    rows = [row for table in tables(result.output) for row in table]
    return {name: cells for name, *cells in (row.values() for row in rows)}


def test_a_search_by_rise_finds_what_stands_out_and_never_the_first_step(tmp_path):
    made = _table(tmp_path, ([1, 1, 5, 1], 2), ([1, 5, 1, 1], 2), ([1, 5, 1, 1], 0))
    verified, first, later = made["uncertainty-surprisal_sum"]
    # tried first: step 3, the error; step 2, then 3; step 2, which comes after the first
    assert verified == f"{4 / 3:.2f}"
    assert first.startswith("66.7 ")
    assert later.startswith("33.3 ")
    assert made["sequential"][0] == f"{(3 + 3 + 1) / 3:.2f}"
    for search in ("sequential", "adaptive_binary"):
        assert made[search][1].startswith("100.0 ")
    assert made["random"][0] == "0.00"


def test_a_measure_is_judged_by_its_rises_and_by_its_values(tmp_path):
    made = _table(tmp_path, ([1, 1, 5, 1], 2), ([1, 5, 1, 1], 1), ([5, 1, 1, 1], 3))
    _, top, matched, pairs = made["surprisal_sum"]
    assert top.startswith("66.7 ")
    # against right steps: 5 and 5 above 1, 1, 1, 1, 1 and level with 5; 1 level with five and below one
    assert pairs.startswith(f"{(2 * 5.5 + 2.5) / 18:.3f} ")
    # at the same place: 5 above 1 three times
    assert matched.startswith("1.000 ")


def test_log_probabilities_are_needed(tmp_path):
    labels = tmp_path / "labels.jsonl"
    labels.write_text(json.dumps({"problem": "p", "steps": STEPS, "first_error": 1}) + "\n", "utf-8")
    with pytest.raises(ValueError, match="1 solutions have no `logprobs` and `ends`"):
        CliRunner().invoke(app, ["ideal", str(labels)], catch_exceptions=False)
