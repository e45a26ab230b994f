"""The study of the searches: what each is charged, and how its labels compare."""

import asyncio
import json
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from research.__main__ import app
from research.searches.findings import markdown, truths
from research.searches.study import study, variants
from research.searches.truth import by_people
from tests.support import tables
from tests.training import lines
from tests.training.data.construction import records_of, run_annotate, run_sample, run_select, silent
from tests.training.scripted import ScriptedSampler
from training import resumable
from training.data import stats
from training.stage_settings import PRESETS, AnnotateSettings
from unprm.answers.equivalence import Equivalence


@pytest.fixture(scope="module")
def equivalence():
    return Equivalence()


@pytest.fixture(scope="module")
def selected(tmp_path_factory, equivalence):
    """A directory with samples and selected solutions."""
    place = tmp_path_factory.mktemp("study")
    run_sample(place)
    run_select(place, equivalence)
    return place


@pytest.fixture(scope="module")
def studied(selected, equivalence):
    """The directory of a study of all searches, and its sampler."""
    sampler, output = ScriptedSampler(), selected / "study"
    searches = variants(AnnotateSettings())
    work = study(selected / "selected.jsonl", sampler, equivalence, output, searches, 4, silent())
    assert asyncio.run(work) == {}
    return output, sampler


def test_a_study_charges_each_search_what_it_takes_alone(studied, selected, equivalence):
    (output, sampler), settings = studied, AnnotateSettings()
    charged = 0
    for name, variant in variants(settings).items():
        alone = records_of(run_annotate(selected, equivalence, variant, name=f"alone-{name}")[1])
        assert records_of(output / f"{name}.jsonl") == alone
        charged += sum(record["samples"] for record in alone)
    assert sampler.completions < charged
    agreed = truths({"uncertainty": stats.read_annotated(output / "uncertainty.jsonl")})["uncertainty"]
    assert 0 <= agreed.first.value <= agreed.labelled <= 1
    (rows,) = tables(markdown(output))
    by_search = {row["search"]: row for row in rows}
    assert by_search.keys() == variants(settings).keys()
    assert list(by_search["random"].values())[:5] == ["random", "0", "0", "0", "100.0 %"]
    assert by_search["adaptive_binary"]["samples saved against adaptive_binary"] == "0.0 %"


def test_people_s_labels_are_a_truth(studied, tmp_path):
    place, labels = studied[0], tmp_path / "labels.jsonl"
    wrong = [row for row in stats.read_annotated(place / "adaptive_binary.jsonl") if not row.correct]
    rows = [{"problem": row.problem, "steps": row.steps, "first_error": 1} for row in wrong]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(ValueError, match="nobody labelled"):
        by_people(labels)(wrong[0].problem, ["another step"])
    result = CliRunner().invoke(app, ["searches", str(place), "--labels", str(labels)])
    assert result.exit_code == 0, result.output
    (shown,) = tables(result.output)
    (row,) = (row for row in shown if row["search"] == "adaptive_binary")
    found = sum(row.first_error == 1 for row in wrong) / len(wrong)
    assert 0 < found < 1
    assert row["first error found"].startswith(f"{100 * found:.1f} ")


def test_the_command_takes_the_preset(selected, tmp_path):
    empty = tmp_path / "selected.jsonl"
    lines.write(empty, resumable.config_of(selected / "selected.jsonl"), [])
    result = CliRunner().invoke(app, ["study", str(empty), "--preset", "authors", "--output", str(tmp_path / "made")])
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "made" / "bayes.config.json").read_text("utf-8"))
    assert config["adaptive"] == asdict(PRESETS["authors"].annotate.adaptive)
    assert "| bayes |" in (tmp_path / "made" / "study.md").read_text("utf-8")
