"""The preset `authors`, from questions to a PRM, with the embedded model."""

import asyncio
import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.training import lines
from training import resumable
from training.cli.data import app
from training.data import stats
from training.data.build import build
from training.data.sample import make_mini
from training.prm.train_settings import TRAIN_PRESETS, TrainSettings
from training.stage_settings import PRESETS
from unprm import mini
from unprm.samplers.load import load_sampler

AUTHORS = PRESETS["authors"]
FEW = replace(AUTHORS.annotate.adaptive, first=4, enough=3, most=16, block=4)
SMALL = replace(
    AUTHORS,
    models=(mini.NAME,),
    sample=replace(AUTHORS.sample, k=10, max_tokens=192),
    annotate=replace(AUTHORS.annotate, max_tokens=192, adaptive=FEW),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory that `build` made of a few questions, and what it printed."""
    place, printed = tmp_path_factory.mktemp("authors"), io.StringIO()

    def load(model, settings):
        return load_sampler("transformers", model, settings)

    failures = asyncio.run(build(make_mini(2, seed=8), load, SMALL, place, 8, Console(file=printed, width=300)))
    assert failures == {}
    return place, printed.getvalue()


def test_build_goes_from_questions_to_a_data_set(built):
    place, printed = built
    annotated = place / mini.NAME / "annotated.jsonl"
    solutions = stats.read_annotated(annotated)
    questions = {record["id"]: record for record in lines.read(annotated.with_suffix(".questions.jsonl"))}
    assert {solution.correct for solution in solutions if solution.labels} == {True, False}
    assert [solution for solution in solutions if solution.tried]
    for solution in solutions:
        count = questions[f"{solution.question}/{mini.NAME}"]["count"]
        assert (solution.reason is not None) is (count == 0)
        assert {trial.samples for trial in solution.tried} <= {count}
        assert all(trial.step < len(solution.steps) for trial in solution.tried)
        assert len(solution.steps) > 1
    labelled = sum(solution.labels is not None for solution in solutions)
    written = (place / "dataset" / "data" / "train.jsonl").read_text().count("\n")
    left_out = int(re.search(r"and (\d+) were left out", printed)[1])  # so that equal prefixes have equal labels
    assert written == labelled - left_out > left_out
    assert " right and " in printed


def test_the_commands_take_the_preset(built, tmp_path):
    place, _ = built
    samples, selected = place / mini.NAME / "samples.jsonl", tmp_path / "selected.jsonl"
    result = CliRunner().invoke(app, ["select", str(samples), "--preset", "authors", "--output", str(selected)])
    assert result.exit_code == 0, result.output
    assert lines.read(selected) == lines.read(place / mini.NAME / "selected.jsonl")
    lines.write(selected, resumable.config_of(selected), [])
    for command in (["sample", "--limit", "1", "--k", "2", "--max-tokens", "60"], ["annotate", str(selected)]):
        output = tmp_path / f"{command[0]}.jsonl"
        result = CliRunner().invoke(app, [*command, "--preset", "authors", "--output", str(output)])
        assert result.exit_code == 0, result.output
    sampled, annotated = (json.loads((tmp_path / f"{name}.config.json").read_text()) for name in ("sample", "annotate"))
    assert sampled["worked_examples"]
    assert (annotated["estimator"], annotated["max_tokens"]) == ("inverse_ppl", 4000)
    assert annotated["adaptive"] == asdict(AUTHORS.annotate.adaptive)


def test_training_takes_the_ranking_loss_and_its_lora():
    settings = TrainSettings(base="b", data=(Path("d"),), output=Path("o"), **TRAIN_PRESETS["authors"])
    assert (settings.loss, settings.lora_rank, settings.lora_alpha, settings.lora_dropout) == ("rank", 8, 32, 0.1)
    assert (settings.lora_targets, settings.learning_rate) == (("q_proj", "v_proj"), 5e-4)
    assert (settings.warmup, settings.epochs) == (0.1, 3)
