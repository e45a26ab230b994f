"""What must not change by accident. Where a change is meant, `python -m tests.golden` writes the files anew."""

import json

import pytest

from tests.golden import kept
from tests.golden.goldens import GOLDENS
from training import schema, sources
from training.evaluate import judging, pool, scorers
from training.layouts.files import WRITERS, read_labelled
from unprm.calibration import Calibration
from unprm.election import acceptance
from unprm.formats.unprm import PrmConfig

FORMATS = kept.KEPT / "formats"
RECORDS = {
    "data/samples.jsonl": schema.SampledQuestion,
    "data/selected.jsonl": schema.SelectedSolution,
    "data/annotated.jsonl": schema.AnnotatedSolution,
    "data/annotated.questions.jsonl": schema.QuestionValue,
    "evaluations/processbench/gsm8k.jsonl": scorers.SolutionScores,
    "evaluations/best-of-n/candidates.jsonl": judging.JudgedCandidates,
    "layouts/read/native.jsonl": schema.LabelledSolution,
}


@pytest.mark.parametrize("name", GOLDENS)
def test_what_is_made_is_what_is_kept(name, tmp_path):
    difference = kept.difference(name, GOLDENS[name](tmp_path))
    if difference:
        pytest.fail(f"{difference}\nIf this is meant: python -m tests.golden {name}", pytrace=False)


@pytest.mark.parametrize("name", RECORDS)
def test_kept_records_are_read_as_they_were_written(name):
    path = FORMATS / name
    assert "".join(map(schema.to_line, sources.read(path, RECORDS[name]))) == path.read_text("utf-8")


@pytest.mark.parametrize("layout", WRITERS)
def test_a_kept_layout_is_read(layout):
    native, written = (
        [(each.steps, each.labels) for each in read_labelled([FORMATS / "layouts" / name])]
        for name in ("read/native.jsonl", f"written/{layout}.jsonl")
    )
    assert written == native


def test_kept_configurations_are_read(tmp_path):
    models, votes = FORMATS / "models", FORMATS / "evaluations" / "calibration.json"
    PrmConfig.read(models).write(tmp_path)
    Calibration.read(models).write(tmp_path)
    for name in ("prm_config.json", "calibration.json"):
        assert (tmp_path / name).read_text("utf-8") == (models / name).read_text("utf-8")
    acceptance.read(votes).write(tmp_path / "votes.json")
    assert json.loads((tmp_path / "votes.json").read_text("utf-8")) == json.loads(votes.read_text("utf-8"))


def test_a_kept_pool_is_the_one_of_its_evaluation():
    config = json.loads((FORMATS / "evaluations/best-of-n/candidates.config.json").read_text("utf-8"))
    assert pool.digest(pool.read_pool(FORMATS / "evaluations/pool.jsonl")) == config["questions"]


def test_every_kept_file_is_one_of_these():
    assert {place.name for place in kept.KEPT.iterdir()} == set(GOLDENS)


def test_a_difference_shows_the_lines_and_is_gone_once_written(tmp_path):
    kept.write("some", {"a.txt": "# a title\none\ntwo\n", "b.jsonl.gz": "{}\n", "gone.txt": ""}, tmp_path)
    made = {"a.txt": "# a title\none\n2\n", "b.jsonl.gz": "{}\n", "new.txt": ""}
    assert kept.difference("some", made, tmp_path).splitlines() == [
        "--- kept/some/a.txt",
        "+++ made/some/a.txt",
        "@@ -2,3 +2,3 @@ a title",
        " one",
        "-two",
        "+2",
        " ",
        "some/gone.txt: no longer made",
        "some/new.txt: made, and not kept",
    ]
    kept.write("some", made, tmp_path)
    assert kept.read("some", tmp_path) == made
    assert not kept.difference("some", made, tmp_path)


def test_a_long_difference_is_cut(tmp_path):
    kept.write("some", {"a.txt": "0\n" * 100}, tmp_path)
    shown = kept.difference("some", {"a.txt": "1\n" * 100}, tmp_path).splitlines()
    assert (len(shown), shown[-1]) == (kept.LINES + 1, f"… and {204 - kept.LINES} lines")


def test_of_a_long_line_what_differs_is_shown(tmp_path):
    kept.write("some", {"a.txt": "0" * 5000 + "one" + "0" * 5000}, tmp_path)
    *_, removed, added = kept.difference("some", {"a.txt": "0" * 5000 + "two" + "0" * 5000}, tmp_path).splitlines()
    half = "0" * (kept.WIDTH // 2)
    assert removed == f"-…{half}one{half[:-3]}…"
    assert added == f"+…{half}two{half[:-3]}…"
