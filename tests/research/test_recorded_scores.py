"""Recorded step scores: the published figures come out, and what can't be used is refused by its record."""

import json

import pytest
from typer.testing import CliRunner

from research import recorded_scores
from research.__main__ import app
from tests.support import TEST_DATA
from unprm.errors import RecordInvalid

DATA = TEST_DATA / "recorded"
F1 = {
    "Qwen2.5-Math-PRM-7B": (0.837, 0.745),
    "Qwen2.5-Math-7B-PRM800K": (0.668, 0.619),
    "Skywork-o1-Open-PRM-Qwen-2.5-7B": (0.687, 0.466),
    "Llama3.1-8B-PRM-Mistral-Data": (0.470, 0.303),
    "Llama3.1-8B-PRM-Deepseek-Data": (0.327, 0.331),
}
"""At 0.5 on gsm8k and math, computed elsewhere."""
ROWS = [
    {"id": "gsm8k-1", "label": -1, "scores": {"a": [0.9, 0.8], "b": [0.6, 0.4]}},
    {"id": "gsm8k-2", "label": 1, "scores": {"a": [0.9, 0.7], "b": [0.9, 0.3]}},
]


@pytest.fixture(scope="module")
def measured():
    return recorded_scores.measure(recorded_scores.read([DATA]))


def _write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_the_known_figures_come_out(measured):
    by_model = {model: prm.results["fixed"].subsets for model, prm in measured.items()}
    assert {model: (figures["gsm8k"].f1, figures["math"].f1) for model, figures in by_model.items()} == {
        model: (pytest.approx(gsm8k, abs=6e-4), pytest.approx(math, abs=6e-4)) for model, (gsm8k, math) in F1.items()
    }
    assert {
        (figures["gsm8k"].right, figures["gsm8k"].wrong, figures["math"].right) for figures in by_model.values()
    } == {(127, 123, 100)}


def test_the_threshold_of_gsm8k_is_used_for_all_beside_each_subset_s_best(measured):
    for prm in measured.values():
        chosen = prm.results["best on gsm8k"]
        assert prm.best["gsm8k"] == (chosen.threshold, chosen.subsets["gsm8k"].f1)
        assert prm.best["math"][1] >= chosen.subsets["math"].f1
        assert prm.best["gsm8k"][1] >= prm.results["fixed"].subsets["gsm8k"].f1


def test_a_wrong_solution_without_a_low_score_up_to_its_error_is_not_found(tmp_path):
    measured = recorded_scores.measure(recorded_scores.read([_write(tmp_path / "x.jsonl", *ROWS)]))
    figures = {model: prm.results["fixed"].subsets["gsm8k"] for model, prm in measured.items()}
    assert (figures["a"].erroneous, figures["a"].correct) == (0, 1)
    assert (figures["b"].erroneous, figures["b"].correct) == (1, 0)


def test_the_table_has_a_row_for_each_prm_and_subset(measured):
    lines = recorded_scores.table(measured).splitlines()[4:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:2] for row in cells[:3]] == [["Qwen2.5-Math-PRM-7B", name] for name in ("gsm8k", "math", "average")]
    assert cells[1][2].startswith("74.5 (")
    assert cells[1][3:] == ["64.0 %", "89.0 %", "77.0 at 0.39", "76.1 at 0.41"]
    assert len(cells) == 15


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"scores": {"a": [0.9, 1.5], "b": [0.9, 0.3]}}, r"scores\.a\.1: Input should be less than or equal to 1"),
        ({"scores": {"a": [0.9, -0.1], "b": [0.9, 0.3]}}, r"scores\.a\.1: Input should be greater than or equal to 0"),
        ({"scores": {"a": [0.9, float("nan")], "b": [0.9, 0.3]}}, r"scores\.a\.1: .*finite"),
        ({"scores": {"a": [0.9, "0.5"], "b": [0.9, 0.3]}}, r"scores\.a\.1: Input should be a valid number"),
        ({"scores": {"a": [], "b": []}}, r"scores\.a: must not be empty"),
        ({"scores": {}}, "scores: must not be empty"),
        ({"scores": {"a": [0.9, 0.5], "b": [0.9]}}, r"different numbers of steps: \[1, 2\]"),
        ({"scores": {"a": [0.9, 0.5], "c": [0.9, 0.5]}}, "scores of a, c, the first record of a, b"),
        ({"scores": {"a": [0.9, 0.5]}}, "scores of a, the first record of a, b"),
        ({"label": 2}, "label 2, but only 2 steps have scores"),
        ({"label": -2}, "label: "),
        ({"label": "1"}, "label: "),
        ({"id": "gsm8k-1"}, "'gsm8k-1' occurs twice"),
        ({"id": "math-1"}, "'math-1' is of math, the first record of gsm8k"),
        ({"id": "aime-1"}, "'aime-1' is none of ProcessBench's"),
    ],
)
def test_bad_records_are_refused_by_their_number(tmp_path, change, complaint):
    path = _write(tmp_path / "x.jsonl", ROWS[0], ROWS[1] | change)
    with pytest.raises(RecordInvalid, match=rf"x\.jsonl, line 2: .*{complaint}"):
        recorded_scores.read([path])


def test_files_that_don_t_go_together_are_refused(tmp_path):
    first = _write(tmp_path / "first.jsonl", *ROWS)
    with pytest.raises(RecordInvalid, match="another file has the subset gsm8k"):
        recorded_scores.read([first, first])
    other = [row | {"id": row["id"].replace("gsm8k", "math"), "scores": {"a": row["scores"]["a"]}} for row in ROWS]
    with pytest.raises(RecordInvalid, match=r"other.jsonl, line 1: it has scores of a, the first record of a, b"):
        recorded_scores.read([first, _write(tmp_path / "other.jsonl", *other)])
    with pytest.raises(RecordInvalid, match="both kinds"):
        recorded_scores.read([_write(tmp_path / "empty.jsonl")])
    with pytest.raises(RecordInvalid, match="both kinds"):
        recorded_scores.read([_write(tmp_path / "right.jsonl", ROWS[0])])
    with pytest.raises(RecordInvalid, match="no prm_scores"):
        recorded_scores.read([tmp_path])


def test_the_command_takes_a_file_or_a_directory():
    def run(*arguments):
        return CliRunner(env={"COLUMNS": "250"}).invoke(app, ["recorded", *map(str, arguments)])

    assert "average" in run(DATA).output
    one = run(DATA / "prm_scores_processbench_gsm8k.jsonl.gz")
    assert one.exit_code == 0
    assert "83.7 (" in one.output
    assert "average" not in one.output
