"""From questions to a data set: sample, select, annotate, merge and stats with a scripted sampler."""

import asyncio
import inspect
import io
import json
import random
import shutil
import signal
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from research.mini.checker import first_error
from tests import forked
from tests.training import lines
from tests.training.data import mortal
from tests.training.data.construction import (
    ANNOTATE,
    QUESTIONS,
    SAMPLE,
    records_of,
    run_annotate,
    run_sample,
    run_select,
    silent,
)
from tests.training.scripted import ScriptedSampler
from training import resumable
from training.cli.data import build as build_command
from training.data import build, stats
from training.data.annotate import unresolved_path
from training.data.merge import merge
from training.data.search import sequential
from training.data.select import Selector, select
from training.layouts.files import read_labelled
from training.stage_settings import PRESETS, AnnotateSettings, SampleSettings, SelectSettings
from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.errors import OutputMismatch, RecordInvalid
from unprm.mini.domain import parse

COLUMNS = "prompt", "answer", "completions", "label"


@pytest.fixture(scope="module")
def equivalence():
    return Equivalence()


@pytest.fixture(scope="module")
def selected(tmp_path_factory, equivalence):
    """A directory with samples and selected solutions."""
    place = tmp_path_factory.mktemp("construct")
    assert run_sample(place) == {}
    run_select(place, equivalence)
    return place


def test_samples_hold_what_the_sampler_gave(selected):
    records = records_of(selected / "samples.jsonl")
    assert [record["id"] for record in records] == sorted(question.id for question in QUESTIONS)
    for record in records:
        assert len(record["completions"]) == SAMPLE.k
        assert "".join(map(chr, record["prompt"])) == record["problem"] + "\n"


def test_samples_do_not_depend_on_concurrency(selected, tmp_path):
    run_sample(tmp_path, concurrency=1)
    assert records_of(tmp_path / "samples.jsonl") == records_of(selected / "samples.jsonl")


def test_a_question_that_always_fails_is_reported_and_leaves_the_others(tmp_path):
    failing = QUESTIONS[3]
    failures = run_sample(tmp_path, ScriptedSampler(fails=failing.problem))
    assert failures == {failing.id: "the script says so"}
    assert len(records_of(tmp_path / "samples.jsonl")) == len(QUESTIONS) - 1
    sampler = ScriptedSampler()
    assert run_sample(tmp_path, sampler) == {}
    assert sampler.completions == SAMPLE.k  # only what was missing


def test_another_number_of_samples_is_refused(selected):
    with pytest.raises(OutputMismatch, match="k was 12, is 13"):
        run_sample(selected, settings=replace(SAMPLE, k=13))


def test_records_of_a_server_that_was_left_to_its_own_settings_are_not_added_to(tmp_path, equivalence):
    """Files from before neutral settings were sent have none in their configuration; those of a model that ran here
    never have."""
    remote = ScriptedSampler()
    remote.neutral = {"top_k": -1}
    run_sample(tmp_path)
    with pytest.raises(OutputMismatch, match=r'neutral_sampling was null, is {"top_k": -1}'):
        run_sample(tmp_path, remote)
    run_select(tmp_path, equivalence)
    run_annotate(tmp_path, equivalence)
    with pytest.raises(OutputMismatch, match=r'neutral_sampling was null, is {"top_k": -1}'):
        run_annotate(tmp_path, equivalence, sampler=remote)
    assert run_annotate(tmp_path, equivalence, sampler=remote, name="anew")[0] == {}


def test_selected_solutions_are_the_most_uncertain_of_each_kind(selected):
    chosen = records_of(selected / "selected.jsonl")
    counts = Counter((record["question"], record["correct"]) for record in chosen)
    assert max(counts[q, True] for q, _ in counts) == 2
    assert max(counts[q, False] for q, _ in counts) <= 6
    for record in chosen:
        assert (str(parse(record["problem"]).answer) == record["predicted"]) is record["correct"]
        assert record["steps"] == steps.split(record["text"])


def test_steps_and_tokens_belong_together(selected):
    for record in records_of(selected / "selected.jsonl"):
        bounds = zip([0, *record["ends"][:-1]], record["ends"], strict=True)
        pieces = ["".join(map(chr, record["ids"][start:end])) for start, end in bounds]
        assert [piece.strip() for piece in pieces] == record["steps"]
        assert "".join(pieces) == record["text"]


def test_malformed_solutions_are_left_out_and_counted(tmp_path, equivalence):
    run_sample(tmp_path)
    path = tmp_path / "samples.jsonl"
    records = records_of(path)
    first = records[0]["completions"]
    first[0]["finished"] = False
    first[1] |= {"text": "Step 1: 1 + 1 = 2.", "ids": list(map(ord, "Step 1: 1 + 1 = 2."))}
    first[2] |= {"text": "", "ids": []}
    lines.write(path, resumable.config_of(path), records)
    selector = run_select(tmp_path, equivalence, SelectSettings(m=99, n=99))
    twice = selector.dropped.pop("same text as another")
    assert selector.dropped == {"over the token limit": 1, "no answer": 2}
    assert len(records_of(tmp_path / "selected.jsonl")) == len(QUESTIONS) * SAMPLE.k - 3 - twice


@pytest.mark.parametrize("selection", ["similarity", "random"])
def test_other_selections_take_as_many(selected, tmp_path, equivalence, selection):
    (tmp_path / "samples.jsonl").write_bytes((selected / "samples.jsonl").read_bytes())
    (tmp_path / "samples.config.json").write_bytes((selected / "samples.config.json").read_bytes())
    run_select(tmp_path, equivalence, SelectSettings(selection=selection))
    ours, others = (records_of(place / "selected.jsonl") for place in (tmp_path, selected))
    assert Counter((r["question"], r["correct"]) for r in ours) == Counter(
        (r["question"], r["correct"]) for r in others
    )
    assert [r["id"] for r in ours] != [r["id"] for r in others]


def test_labels_are_those_of_the_exact_checker_where_rollouts_never_recover(selected, equivalence):
    failures, output = run_annotate(selected, equivalence, replace(ANNOTATE, estimator="frequency"))
    assert failures == {}
    records = records_of(output)
    agreed = 0
    for record in records:
        true = first_error(parse(record["problem"]), record["steps"])
        if record["correct"]:
            assert all(record["labels"])
            assert record["tried"] == []
        else:
            agreed += record["labels"].index(False) == true
            assert record["verified"] == len(record["tried"]) >= 1
            assert record["samples"] == sum(tried["samples"] for tried in record["tried"])
    wrong = sum(not record["correct"] for record in records)
    assert wrong > 20
    # a right prefix sometimes does worse than the question alone, by chance
    assert agreed / wrong > 0.6


def test_the_question_alone_is_sampled_once(selected, equivalence, tmp_path):
    questions = records_of(run_annotate(selected, equivalence, name="once")[1].with_suffix(".questions.jsonl"))
    wrong = {record["question"] for record in records_of(selected / "selected.jsonl") if not record["correct"]}
    assert {question["id"] for question in questions} == {f"{name}/scripted" for name in wrong}
    assert all(0 < question["tau"] <= 1 for question in questions)


def test_annotation_does_not_depend_on_concurrency_or_interruptions(selected, equivalence):
    whole = records_of(run_annotate(selected, equivalence, concurrency=1, name="one")[1])
    assert records_of(run_annotate(selected, equivalence, concurrency=12, name="twelve")[1]) == whole
    interrupted = selected / "interrupted.jsonl"
    run_annotate(selected, equivalence, name="interrupted")
    lines = interrupted.read_text().splitlines(keepends=True)
    interrupted.write_text("".join(random.Random(2).sample(lines, len(lines) // 2)))
    run_annotate(selected, equivalence, name="interrupted")
    assert records_of(interrupted) == whole


@pytest.mark.parametrize("search", ["uncertainty", "adaptive_binary", "bayes", "random"])
def test_every_search_labels_every_solution_or_says_why_not(selected, equivalence, search):
    output = run_annotate(selected, equivalence, AnnotateSettings(search=search), name=search)[1]
    labelled, unresolved = records_of(output), records_of(unresolved_path(output))
    done = {record["id"] for record in [*labelled, *unresolved]}
    assert done == {record["id"] for record in records_of(selected / "selected.jsonl")}
    for record in labelled:
        assert record["labels"] == sorted(record["labels"], reverse=True)  # true, then false
        assert all(record["labels"]) is record["correct"]
    for record in unresolved:
        assert record["reason"]
        assert not record["correct"]
    if search == "random":
        assert not any(record["samples"] for record in labelled)


def test_progress_is_that_of_solutions_with_the_rollouts_taken(selected, equivalence):
    console, sampler = Console(file=io.StringIO(), width=200), ScriptedSampler()
    run_annotate(selected, equivalence, sampler=sampler, name="shown", console=console)
    last = [line for line in console.file.getvalue().splitlines() if "left out" not in line][-1]
    count = len(records_of(selected / "selected.jsonl"))
    assert f" {count}/{count} " in last
    assert f" {sampler.completions:,} samples" in last


def test_shared_prefixes_are_drawn_once_and_labels_stay_good(selected, equivalence):
    alone, together = ScriptedSampler(), ScriptedSampler()
    run_annotate(selected, equivalence, sampler=alone, name="alone")
    shared = run_annotate(selected, equivalence, replace(ANNOTATE, share_prefixes=True), together, name="shared")[1]
    assert together.completions < alone.completions
    costs = stats.costs(shared)
    assert costs.samples + costs.tau_samples == together.completions
    assert costs.samples < sum(solution.samples for solution in stats.read_annotated(shared))


def test_a_model_that_never_solves_the_question_labels_nothing(selected, equivalence, tmp_path):
    (tmp_path / "selected.config.json").write_text("{}")
    wrong = [record | {"answer": "no such number"} for record in records_of(selected / "selected.jsonl")]
    lines.write(tmp_path / "selected.jsonl", {}, [record for record in wrong if not record["correct"]])
    sampler = ScriptedSampler()
    output = run_annotate(tmp_path, equivalence, sampler=sampler)[1]
    assert records_of(output) == []
    left = records_of(unresolved_path(output))
    assert {record["reason"] for record in left} <= {"the model never solves the question"}
    assert sampler.completions == 72 * len({record["question"] for record in left})


def test_solutions_of_another_model_or_without_tokens_are_refused(selected, equivalence, tmp_path):
    for change, message in (({"model": "gpt"}, "by gpt"), ({"ids": []}, "without token ids")):
        records = [record | change for record in records_of(selected / "selected.jsonl")]
        lines.write(tmp_path / "selected.jsonl", {}, records)
        with pytest.raises(RecordInvalid, match=message):
            run_annotate(tmp_path, equivalence)


def test_records_with_the_ids_of_other_questions_or_solutions_are_refused(selected, equivalence, tmp_path):
    for path in (selected / "samples.jsonl", selected / "selected.jsonl"):
        lines.write(tmp_path / path.name, resumable.config_of(path), lines.read(path))
    run_annotate(tmp_path, equivalence)
    for name, field, run in (("selected", "steps", lambda: run_annotate(tmp_path, equivalence)),
                             ("samples", "problem", lambda: run_sample(tmp_path))):  # fmt: skip
        path = tmp_path / f"{name}.jsonl"
        records = lines.read(path)
        records[-1][field] = records[0][field] * 2
        lines.write(path, resumable.config_of(path), records)
        with pytest.raises(OutputMismatch, match="has another record with the id"):
            run()


def test_selection_does_not_overwrite_its_samples(selected, equivalence):
    before, place = (selected / "samples.jsonl").read_bytes(), selected / "samples.jsonl"
    with pytest.raises(OutputMismatch, match="was made with another configuration"):
        select(place, place, Selector(equivalence, ScriptedSampler().decode, SelectSettings()), silent())
    assert place.read_bytes() == before


def test_a_merge_that_fails_leaves_nothing(selected, equivalence, tmp_path):
    output = run_annotate(selected, equivalence, name="alone")[1]
    path = tmp_path / "annotated.jsonl"
    shutil.copy(output, path)
    with pytest.raises(OutputMismatch, match=r"annotated\.config\.json, which says .* is gone"):
        merge([path], tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_merged_data_is_read_by_the_trainer_and_has_no_duplicates(selected, equivalence, tmp_path):
    output = run_annotate(selected, equivalence, name="merged")[1]
    merged = merge([output, output], tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "data" / "train.jsonl").read_text().splitlines()]
    labelled = records_of(output)
    assert merged.solutions == len(rows)
    assert merged.solutions + merged.refuted == len({(r["problem"], *r["steps"]) for r in labelled})
    assert merged.duplicates == 2 * len(labelled) - len(rows) - merged.refuted
    assert {tuple(row) for row in rows} == {COLUMNS}
    read = list(read_labelled([tmp_path]))
    assert [list(solution.labels) for solution in read] == [row["label"] for row in rows]
    assert f"{len(rows)} solutions" in (tmp_path / "README.md").read_text()


def test_merged_data_loads_as_a_data_set(selected, equivalence, tmp_path):
    import datasets

    merged = merge([run_annotate(selected, equivalence, name="merged")[1]], tmp_path / "set")
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.num_rows == merged.solutions
    assert set(loaded.column_names) == set(COLUMNS)


def test_stats_count_what_was_spent(selected, equivalence):
    sampler = ScriptedSampler()
    output = run_annotate(selected, equivalence, AnnotateSettings(), sampler, name="counted")[1]
    costs = stats.costs(output)
    assert costs.samples + costs.tau_samples == sampler.completions
    assert costs.solutions == len(records_of(selected / "selected.jsonl"))


def test_kills_lose_nothing_and_repeat_nothing(selected, equivalence):
    whole = run_annotate(selected, equivalence, name="undisturbed")[1]
    killed = selected / "killed.jsonl"
    grown, ended, calls = set(), -signal.SIGKILL, 0
    while ended == -signal.SIGKILL:
        calls += 7  # in the end, as many as the longest search takes
        run = forked.start(mortal.annotate, selected / "selected.jsonl", killed, ANNOTATE, calls)
        run.join()
        ended = run.exitcode
        grown.add(killed.stat().st_size)
    assert ended == 0
    assert len(grown) > 5
    for name in ("", ".unresolved", ".questions"):
        left, right = (path.with_suffix(f"{name}.jsonl") for path in (killed, whole))
        assert records_of(left) == records_of(right)
        ids = [record["id"] for record in lines.read(left)]
        assert len(ids) == len(set(ids))


def test_the_named_search_is_the_one_that_runs():
    from training.data.annotator import named_search

    assert named_search(AnnotateSettings(search="sequential")) is sequential
    assert named_search(AnnotateSettings(search="random")) is None


def test_build_searches_as_recommended_and_as_the_paper_by_name():
    default = PRESETS[inspect.signature(build_command).parameters["preset"].default].annotate
    assert (default.search, default.measure) == ("bayes", "surprisal_max")
    assert default == replace(PRESETS["recommended"].annotate, max_tokens=default.max_tokens)
    assert (PRESETS["paper"].annotate.search, PRESETS["paper"].annotate.measure) == ("uncertainty", "entropy")


@pytest.mark.parametrize(("search", "ranked"), [("uncertainty", True), ("uncertainty-literal", True), ("bayes", False)])
def test_only_searches_by_falling_rise_record_ranks(selected, equivalence, search, ranked):
    output = run_annotate(selected, equivalence, AnnotateSettings(search=search), name=f"ranks-{search}")[1]
    searched = [solution for solution in stats.read_annotated(output) if solution.tried]
    assert {solution.rank != "unranked" for solution in searched} == {ranked}
    assert {"rank" in record for record in records_of(output) if record["tried"]} == {ranked}
    assert (stats.ranks(searched) is not None) is ranked
    for solution in searched:
        if ranked and solution.rank is not None:
            assert solution.tried[solution.rank].step == solution.labels.index(False) + 1
            assert solution.rank == len(solution.tried) - 1


def _build(place, questions, k=12, fails=""):
    preset = replace(PRESETS["mini"], models=("scripted",), sample=SampleSettings(k=k), annotate=ANNOTATE)
    console = Console(file=io.StringIO(), width=500)
    return asyncio.run(build.build(questions, lambda *_: ScriptedSampler(fails), preset, place, 4, console)), console


def test_a_build_without_a_right_solution_stops_before_it_draws_rollouts(tmp_path):
    unsolved = [replace(question, gold_answer="no such number") for question in QUESTIONS[:3]]
    with pytest.raises(RecordInvalid, match=r"none of the solutions of 3 questions is right.*stronger --model"):
        _build(tmp_path, unsolved)
    with pytest.raises(RecordInvalid, match=r"none of the solutions of 2 questions is right.*1 more failed"):
        _build(tmp_path / "failed", unsolved, fails=unsolved[0].problem)
    assert not list(tmp_path.rglob("annotated.jsonl"))


def test_a_build_warns_where_few_questions_are_solved_and_counts_what_it_leaves_out(tmp_path):
    unsolved = [replace(question, gold_answer="no such number") for question in QUESTIONS[1:6]]
    failures, console = _build(tmp_path, [QUESTIONS[0], *unsolved])
    said = console.file.getvalue()
    assert failures == {}
    assert "only 1 of 6 questions have a right solution" in said
    left = records_of(tmp_path / "scripted" / "annotated.unresolved.jsonl")
    assert left
    assert f"left out, the model never solves the question: {len(left)}" in said
    assert "so that equal prefixes have equal labels" in said
