"""One page of all benchmarks."""

import json

import pytest
from typer.testing import CliRunner

from tests.support import TEST_DATA
from training.cli.evaluate import app

SAMPLES = {"problem": "1 + 1?", "answer": "2", "candidates": [{"text": f"1 + 1 = {n}.\n\nSo {n}."} for n in (2, 3, 2)]}


@pytest.fixture
def options(tmp_path):
    """Options of a run on few solutions of all kinds of PRMBench and one subset of ProcessBench."""
    few = {"processbench/gsm8k": slice(11, 15), "prmbench/solutions": slice(None)}
    for name, lines in few.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir()
        path.write_text("\n".join((TEST_DATA / f"{name}.jsonl").read_text("utf-8").splitlines()[lines]), "utf-8")
    (tmp_path / "samples.jsonl").write_text(json.dumps(SAMPLES), "utf-8")
    return ["all", "--processbench", str(tmp_path / "processbench"), "--prmbench", str(tmp_path / "prmbench")]


def test_a_page_has_the_results_of_all_runs_beside_published_figures(options, tmp_path):
    output, samples = tmp_path / "runs", tmp_path / "samples.jsonl"
    done = CliRunner().invoke(app, [*options, "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert not (output / "best-of-n").exists()
    assert "majority" not in (output / "unprm-mini.md").read_text("utf-8")
    done = CliRunner().invoke(app, [*options, "--samples", str(samples), "--output", str(output)])
    assert done.exit_code == 0, done.output
    page = (output / "unprm-mini.md").read_text("utf-8")
    first, steps = (
        json.loads((output / run / "unprm-mini" / "results.json").read_text("utf-8"))
        for run in ("processbench", "prmbench")
    )
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert rows[0] == ["model", "figures", "gsm8k", "average"]
    f1 = f"{100 * first['fixed']['subsets']['gsm8k']['f1']:.1f}"
    assert [cell.partition(" (")[0] for cell in rows[2]] == ["unprm-mini", "threshold 0.5", f1, f1]
    assert ["Qwen2.5-Math-PRM-7B", "published", "82.4", "–"] in rows
    (here,) = (row for row in rows if row[:2] == ["unprm-mini", "here"])
    assert here[2].partition(" (")[0] == f"{100 * steps['overall']['mean']:.1f}"
    assert (output / "best-of-n" / "unprm-mini" / "votes.md").read_text("utf-8") in page
