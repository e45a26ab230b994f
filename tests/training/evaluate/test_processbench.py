"""ProcessBench on real samples, against figures that are computed here in another way."""

import gzip
import io
import json
import shutil
from fractions import Fraction

import pytest
from rich.console import Console

from tests.fake_engine import FakeEngine, FakeFormat
from tests.server.harness import serving
from tests.support import TEST_DATA
from training.evaluate import processbench as bench
from training.evaluate.scorers import EngineScorer, ServerScorer
from unprm.errors import ModelUnavailable, OutputMismatch, RecordInvalid
from unprm.types import Solution

DATA = TEST_DATA / "processbench"


def _quiet():
    return Console(file=io.StringIO())


def _rows(subset):
    return [json.loads(line) for line in (DATA / f"{subset}.jsonl").read_text("utf-8").splitlines()]


def _by_hand(rows, scores, threshold):
    """The official definition: accuracy on the wrong, accuracy on the right, harmonic mean; in exact arithmetic."""
    hits = {True: [], False: []}
    for row in rows:
        guess = -1
        for index, score in enumerate(scores[row["id"]]):
            if score < threshold:
                guess = index
                break
        hits[row["label"] == -1].append(guess == row["label"])
    wrong, right = (Fraction(sum(hits[kind]), len(hits[kind])) for kind in (False, True))
    return float(wrong), float(right), float(2 * wrong * right / (wrong + right)) if wrong + right else 0.0


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    output = tmp_path_factory.mktemp("bench")
    subsets = bench.load_processbench(str(DATA))
    return subsets, bench.score(subsets, EngineScorer(FakeEngine()), output, _quiet()), output


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".jsonl.gz"])
def test_files_are_read_as_in_training(ending, tmp_path):
    rows = _rows("gsm8k")
    lines = json.dumps(rows, indent=1) if "json." in f"{ending}." else "\n".join(map(json.dumps, rows))
    (tmp_path / "below").mkdir()
    place = tmp_path / "below" / f"gsm8k{ending}"
    place.write_bytes(gzip.compress(lines.encode()) if ending.endswith(".gz") else lines.encode())
    assert bench.load_processbench(str(tmp_path)) == bench.load_processbench(str(DATA / "gsm8k.jsonl"))
    assert bench.load_processbench(str(place))["gsm8k"][0].id == rows[0]["id"]


def test_no_threshold_is_chosen_on_the_subset_that_it_would_be_tried_on(scored):
    subsets, scores, _ = scored
    assert list(bench.results(subsets, scores)) == ["fixed", "best on gsm8k"]
    assert list(bench.results({"math": subsets["math"]}, scores)) == ["fixed"]


def test_figures_are_those_of_the_official_definition(scored):
    subsets, scores, _ = scored
    assert {name: len(samples) for name, samples in subsets.items()} == {"gsm8k": 24, "math": 24}
    for threshold in (0.02, 0.05, 0.2, 0.5):
        for name, samples in subsets.items():
            figures = bench.figures(samples, scores[name], threshold)
            measured = (figures.erroneous, figures.correct, figures.f1)
            assert measured == pytest.approx(_by_hand(_rows(name), scores[name], threshold))
            assert figures.f1_low <= figures.f1 <= figures.f1_high
            assert (figures.wrong, figures.right, figures.too_long) == (14, 10, 0)


def test_perfect_scores_reach_100_and_none_0():
    (samples,) = bench.load_processbench(str(DATA / "gsm8k.jsonl")).values()
    perfect = {s.id: tuple(float(k != s.label) for k in range(len(s.steps))) for s in samples}
    assert bench.figures(samples, perfect, 0.5).f1 == 1
    assert bench.figures(samples, {s.id: (1.0,) * len(s.steps) for s in samples}, 0.5).f1 == 0
    unscored = bench.figures(samples, dict.fromkeys(perfect), 0.5)
    assert (unscored.erroneous, unscored.correct, unscored.too_long) == (0, 0, 24)


def test_one_threshold_is_chosen_on_gsm8k_and_used_for_all(scored):
    subsets, scores, _ = scored
    results = bench.results(subsets, scores)
    chosen = results["best on gsm8k"]
    best = max(_by_hand(_rows("gsm8k"), scores["gsm8k"], k / 100)[2] for k in range(1, 100))
    assert chosen.subsets["gsm8k"].f1 == pytest.approx(best)
    assert chosen.subsets["math"].f1 == pytest.approx(_by_hand(_rows("math"), scores["math"], chosen.threshold)[2])
    assert chosen.average_f1 == (chosen.subsets["gsm8k"].f1 + chosen.subsets["math"].f1) / 2
    assert results["fixed"].threshold == 0.5


def test_a_run_goes_on_where_it_was_and_for_its_own_model_alone(scored, tmp_path):
    subsets, scores, output = scored
    shutil.copytree(output, tmp_path, dirs_exist_ok=True)
    half = (tmp_path / "math.jsonl").read_text("utf-8").splitlines(keepends=True)[:9]
    (tmp_path / "math.jsonl").write_text("".join(half) + '{"id": "math-', "utf-8")
    engine = FakeEngine()
    assert bench.score(subsets, EngineScorer(engine), tmp_path, _quiet()) == scores
    assert sum(map(len, engine.batches)) == 15
    other = FakeEngine()
    other.description = other.description.model_copy(update={"name": "another"})
    with pytest.raises(OutputMismatch, match="another"):
        bench.score(subsets, EngineScorer(other), tmp_path, _quiet())


def test_a_server_gives_the_same_scores_and_tells_what_is_too_long(scored):
    subsets, scores, _ = scored
    samples = subsets["gsm8k"]
    with serving(FakeEngine(max_tokens=1200)) as running:
        scorer = ServerScorer(running.url)
        assert scorer.identity.model == "fake"
        solutions = [Solution(sample.steps, problem=sample.problem) for sample in samples]
        remote = scorer.score(solutions)
        scorer.close()
    local = EngineScorer(FakeEngine(max_tokens=1200)).score(solutions)
    assert None in local
    assert [values and pytest.approx(values, abs=1e-6) for values in remote] == local
    for sample, step_scores in zip(samples, local, strict=True):
        too_long = len(FakeFormat().encode(sample.problem, sample.steps).ids) > 1200
        assert step_scores == (None if too_long else scores["gsm8k"][sample.id])


def test_a_server_that_is_not_there_or_refuses_is_reported():
    with pytest.raises(ModelUnavailable, match="can't be reached"):
        ServerScorer("http://127.0.0.1:9")
    with serving(api_key="right") as running, pytest.raises(ModelUnavailable, match="unauthorized"):
        ServerScorer(running.url, "wrong").score([Solution(("b",), problem="a")])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"label": 99}, "label 99, but"),
        ({"label": -2}, "label"),
        ({"steps": []}, "steps"),
        ({"problem": ""}, "problem"),
    ],
)
def test_bad_records_are_refused_by_line(tmp_path, change, complaint):
    rows = _rows("gsm8k")[:2]
    with gzip.open(tmp_path / "gsm8k.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in (rows[0], rows[1] | change))
    with pytest.raises(RecordInvalid, match=f"(?s)2.*{complaint}"):
        bench.load_processbench(str(tmp_path))
    (tmp_path / "twice.jsonl").write_text(2 * (json.dumps(rows[0]) + "\n"), "utf-8")
    (tmp_path / "wrong.jsonl").write_text(json.dumps(rows[0] | {"label": 0}) + "\n", "utf-8")
    with pytest.raises(RecordInvalid, match="both kinds"):
        bench.load_processbench(str(tmp_path / "wrong.jsonl"))
    with pytest.raises(RecordInvalid, match="twice"):
        bench.load_processbench(str(tmp_path / "twice.jsonl"))
