"""One page of all benchmarks."""

import json

import pytest
from typer.testing import CliRunner

from tests.support import TEST_DATA
from training.cli.evaluate import app
from training.evaluate import summary

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


def _rows(page):
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    return {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:] if len(row) == len(lines[0])}


def test_a_page_has_the_results_of_all_runs_beside_published_figures(options, tmp_path):
    output, samples = tmp_path / "runs", tmp_path / "samples.jsonl"
    done = CliRunner().invoke(app, [*options, "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert not (output / "best-of-n").exists()
    assert "majority" not in (output / "unprm-mini.md").read_text("utf-8")
    done = CliRunner().invoke(app, [*options, "--samples", str(samples), "--output", str(output)])
    assert done.exit_code == 0, done.output
    page = (output / "unprm-mini.md").read_text("utf-8")
    rows, runs = _rows(page), {}
    for run in ("processbench", "prmbench", "best-of-n"):
        runs[run] = json.loads((output / run / "unprm-mini" / "results.json").read_text("utf-8"))
    here = rows["unprm-mini"]
    assert here["F1 gsm8k"] == f"{100 * runs['processbench']['fixed']['subsets']['gsm8k']['f1']:.1f}"
    assert (here["F1 math"], here["F1 average"]) == ("–", "–")
    assert here["PRMScore"] == f"{100 * runs['prmbench']['overall']['mean']:.1f}"
    assert here["soundness"] == f"{100 * runs['prmbench']['groups']['soundness']:.1f}"
    assert (output / "best-of-n" / "unprm-mini" / "votes.md").read_text("utf-8") in page
    known = rows["Qwen2.5-Math-PRM-7B"]
    assert [known[column] for column in ("F1 average", "sensitivity", "PRMScore")] == ["73.5", "75.6", "65.5"]
    assert rows["Skywork-PRM-7B"]["F1 gsm8k"] == rows["Qwen2.5-Math-7B-UnPRM40K"]["PRMScore"] == "–"
    assert list(here)[2:] == list(summary.COLUMNS)
