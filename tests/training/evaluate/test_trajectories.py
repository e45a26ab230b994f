"""Labels of steps and the best trajectory of a task, from recorded judges and from a PRM."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from training.cli.evaluate import app
from training.evaluate.scorers import Identity
from training.evaluate.trajectories import (
    PEOPLE,
    JudgeLabels,
    LabelledTrajectory,
    against_min,
    bounds,
    measure,
    read_trajectories,
    recorded,
    score,
)
from unprm.errors import RecordInvalid
from unprm.trajectories import Reading

DATA = Path(__file__).parents[2] / "data/trajectories"


def trajectory(number, labels, final, **judges):
    steps = {str(2 * k): label for k, label in enumerate(labels)}
    recorded = {name: JudgeLabels({str(2 * k): label for k, label in enumerate(row)}) for name, row in judges.items()}
    return LabelledTrajectory(f"q:{number}", "q", steps, final, recorded)


def test_figures_by_hand():
    rows = [
        trajectory(0, [1, -1, 1], -1, judge=[1, 0, 1]),
        trajectory(1, [1, 1], 1, judge=[1, -1]),
        trajectory(2, [0, 1], -1, judge=[0, None]),
    ]
    figures = measure(rows, recorded(rows)["judge"])
    assert figures.steps.mean == pytest.approx((2 + 1 + 1) / 7)  # what a judge leaves out counts as neither
    assert figures.first.mean == pytest.approx(1 / 3)
    assert {name: share.mean for name, share in figures.best.items()} == {"min": 0, "mean": 0, "last": 0, "product": 0}
    assert measure(rows, recorded(rows)[PEOPLE]).best["min"].mean == 1
    assert bounds(rows) == (pytest.approx(1 / 3), 1)


def test_equal_rewards_share_the_election():
    rows = [trajectory(0, [1], 1), trajectory(1, [1], -1)]
    assert measure(rows, recorded(rows)[PEOPLE]).best["mean"].mean == 0.5


def test_an_aggregate_is_compared_with_the_minimum():
    rows = [trajectory(0, [1, -1, 1], 1, judge=[1, -1, 1]), trajectory(1, [0, 0], -1, judge=[0, 0])]
    found = against_min(rows, [recorded(rows)["judge"]])
    assert {name: share.mean for name, share in found.items()} == {"mean": 1, "last": 1, "product": 0}


def test_the_recorded_slice(tmp_path):
    done = CliRunner().invoke(
        app, ["trajectories", str(DATA / "labels.jsonl.gz"), "--recorded", "--output", str(tmp_path)]
    )
    assert done.exit_code == 0
    table = (tmp_path / "trajectories.md").read_text()
    assert [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:] == [
        PEOPLE, "Kimi-K2.5-Thinking", "Llama-3.2-3B-Instruct", "Qwen3-8B",
    ]  # fmt: skip
    assert table in done.stdout
    assert "60 trajectories of 12 tasks" in table


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step_labels": {}}, "step_labels is empty"),
        ({"step_labels": {"2": 5}}, "Input should be -1, 0 or 1"),
        ({"judges": {"a": {"steps": {"4": 1}}}}, "a judges other steps"),
    ],
)
def test_bad_rows_are_refused_by_line(change, reason, tmp_path):
    row = {"id": "q:0", "query": "q", "step_labels": {"2": 1}, "final_label": 1, **change}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(RecordInvalid, match=reason):
        read_trajectories(tmp_path / "rows.jsonl")


class ByLength:
    """Finds short steps right; what it was given is kept."""

    identity = Identity("by length", "float32", "a digest")

    def __init__(self):
        self.seen = []

    def score(self, batch):
        self.seen += batch
        return [tuple(1 / (1 + len(step) / 100) for step in each.steps) for each in batch]


def test_a_prm_scores_messages_by_their_index(tmp_path):
    rows, scorer = read_trajectories(DATA / "hotpotqa.jsonl.gz"), ByLength()
    found = score(rows, scorer, Reading(), tmp_path, Console(quiet=True))
    for row in rows:
        assert len(found[row.id]) == len(row.step_labels)
    assert all(len(each.steps) == len(row.step_labels) for each, row in zip(scorer.seen, rows, strict=True))
    assert measure(rows, found).steps.mean < 1
    again = ByLength()
    assert score(rows, again, Reading(), tmp_path, Console(quiet=True)) == found
    assert not again.seen
