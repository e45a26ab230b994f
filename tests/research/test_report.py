"""The report: what its tables and figures say of made-up results whose outcome is known."""

import json
import re
from dataclasses import asdict

import pytest

from research.report.page import write
from tests.support import tables
from training.evaluate.metrics import Share
from training.evaluate.processbench import PUBLISHED, SUBSETS, FirstErrorFigures
from unprm.errors import RecordInvalid
from unprm.votes.registry import VOTES

LOW = {vote: Share(0.6, 0.58, 0.62) for vote in VOTES}


def _write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


def _best_of_n(directory, run, shares, questions=200):
    """Accuracies at N = 4 as given; all alike at N = 1."""
    accuracy = {vote: {1: asdict(Share(0.5, 0.45, 0.55)), 4: asdict(share)} for vote, share in (LOW | shares).items()}
    results = {"model": "m", "alpha": 0.5, "seed": 0, "questions": questions, "candidates": 4, "accuracy": accuracy}
    place = directory / "best-of-n" / run
    _write_json(
        place / "results.json", results | {"any_right": accuracy["majority"] | {4: asdict(Share(0.95, 0.9, 1.0))}}
    )


def _processbench(directory, run, f1, subsets=SUBSETS, wrong=60, right=40):
    figures = {name: asdict(FirstErrorFigures(0.3, 0.8, f1, f1 - 0.05, f1 + 0.05, wrong, right, 0)) for name in subsets}
    result = {"subsets": figures, "average_f1": f1}
    results = {"model": "m", "fixed": {"threshold": 0.5, **result}, "best on gsm8k": {"threshold": 0.31, **result}}
    _write_json(directory / "processbench" / run / "results.json", results)


def _findings(directory):
    (directory / "findings.md").write_text("## Is it so?\n\n| PRM | share |\n|---|--:|\n| UnPRM | 0.867 |\n", "utf-8")


def _everything(directory):
    _findings(directory)
    _best_of_n(directory, "UnPRM/0", {})
    _processbench(directory, "UnPRM/0", 0.4)


def _tables(directory):
    return tables(write(directory).read_text("utf-8"))


def test_seeds_of_a_prm_are_averaged_with_their_intervals(tmp_path):
    _best_of_n(tmp_path, "UnPRM/seed-0", {"wrf": Share(0.8, 0.76, 0.84)})
    _best_of_n(tmp_path, "UnPRM/deeper/seed-1", {"wrf": Share(0.9, 0.88, 0.92)})
    _processbench(tmp_path, "UnPRM/0", 0.4)
    _processbench(tmp_path, "UnPRM/1", 0.5)
    (votes,), (first_errors, *_) = _tables(tmp_path)
    assert (votes["PRM"], votes["seeds"], votes["questions"], votes["N"]) == ("UnPRM", "2", "200", "4")
    assert (votes["wrf"], votes["any right"]) == ("85.0 (82.0–88.0)", "95.0 (90.0–100.0)")
    assert list(first_errors.values())[:3] == ["UnPRM", "threshold 0.5 (fixed)", "45.0 (40.0–50.0)"]


def test_seeds_that_were_measured_on_different_data_are_refused(tmp_path):
    _best_of_n(tmp_path, "UnPRM/0", {})
    _best_of_n(tmp_path, "UnPRM/1", {}, questions=100)
    with pytest.raises(RecordInvalid, match="other questions than"):
        write(tmp_path)
    _best_of_n(tmp_path, "UnPRM/1", {})
    _processbench(tmp_path, "UnPRM/0", 0.4)
    for changed in ({"wrong": 50}, {"wrong": 50, "right": 50}):
        _processbench(tmp_path, "UnPRM/1", 0.4, **changed)
        with pytest.raises(RecordInvalid, match="other subsets than"):
            write(tmp_path)


def test_what_was_published_stands_beside_the_same_subsets_only(tmp_path):
    _processbench(tmp_path, "A", 0.5)
    _processbench(tmp_path, "B", 0.3, SUBSETS[:2])
    (rows,) = _tables(tmp_path)
    assert [*rows[2].values()][:5] == ["B", "threshold 0.5 (fixed)", "30.0 (25.0–35.0)", "30.0 (25.0–35.0)", "–"]
    assert rows[1]["figures"] == "threshold 0.31 (best on gsm8k)"
    assert len(rows) == 4 + len(PUBLISHED)
    assert ["Qwen2.5-Math-7B-UnPRM40K", "published", "53.5", "43.4", "33.6", "30.8", "40.3"] in [
        [*row.values()] for row in rows
    ]
    _processbench(tmp_path, "A", 0.45, ("easy", "hard"))
    _processbench(tmp_path, "B", 0.4, ("easy", "hard"))
    (rows,) = _tables(tmp_path)
    assert [row["model"] for row in rows[:4]] == ["A", "A", "B", "B"]
    assert {(row["easy"], row["average"]) for row in rows[4:]} == {("–", "–")}


@pytest.mark.parametrize(
    ("make", "there"),
    [
        (_findings, "Is it so?"),
        (lambda directory: _best_of_n(directory, "A", {}), "Best of N"),
        (lambda directory: _processbench(directory, "A", 0.4), "ProcessBench"),
    ],
    ids=("findings", "best-of-n", "processbench"),
)
def test_each_part_may_be_missing(tmp_path, make, there):
    make(tmp_path)
    assert re.findall("^## (.*)$", write(tmp_path).read_text("utf-8"), re.MULTILINE) == [there]


def test_a_directory_with_nothing_is_refused_with_what_was_expected(tmp_path):
    (tmp_path / "best-of-n" / "A").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordInvalid, match=r"findings\.md.*best-of-n.*processbench"):
        write(tmp_path)
    assert not (tmp_path / "report.md").exists()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda directory: _write_json(directory / "processbench" / "A" / "results.json", {"model": "m"}), "fixed"),
        (lambda directory: _best_of_n(directory, "A", {"wrf": Share(0.5, 0.4, "much")}), "wrf"),
    ],
    ids=("no result", "no share"),
)
def test_what_the_commands_did_not_write_is_refused(tmp_path, make, reason):
    make(tmp_path)
    with pytest.raises(RecordInvalid, match=reason):
        write(tmp_path)


def test_a_vote_that_is_not_there_is_refused(tmp_path):
    _best_of_n(tmp_path, "A", {})
    path = tmp_path / "best-of-n" / "A" / "results.json"
    results = json.loads(path.read_text("utf-8"))
    del results["accuracy"]["weighted"]
    _write_json(path, results)
    with pytest.raises(RecordInvalid, match="not all there"):
        write(tmp_path)


def test_names_are_no_formulas(tmp_path):
    name = "_$x^{$"
    _best_of_n(tmp_path, name, {})
    _processbench(tmp_path, name, 0.4, (name,))
    assert [rows[0][what] for rows, what in zip(_tables(tmp_path), ("PRM", "model"), strict=True)] == [name, name]


def test_the_picture_is_beside_the_page_and_says_what_it_draws(tmp_path):
    _everything(tmp_path)
    page = write(tmp_path).read_text("utf-8")
    assert re.findall(r"^!\[(.+)\]\((.+)\)$", page, re.MULTILINE) == [
        ("Right answers by number of candidates, a panel per vote", "figures/accuracy-by-vote.png")
    ]
    assert "intervals over n = 200 questions" in page
    picture = (tmp_path / "figures" / "accuracy-by-vote.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20], "big") == 1500


def test_the_same_results_give_the_same_page(tmp_path):
    _everything(tmp_path)
    first = write(tmp_path).read_bytes()
    assert write(tmp_path).read_bytes() == first
