"""PRMBench on real rows, against figures that are computed by hand or here in another way."""

import gzip
import io
import json
import random
from fractions import Fraction

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.fake_engine import FakeEngine
from tests.support import TEST_DATA
from training.cli.evaluate import app
from training.evaluate import prmbench
from training.evaluate.scorers import EngineScorer
from unprm.errors import RecordInvalid

DATA = TEST_DATA / "prmbench" / "solutions.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
COUNTED = ROWS[:18] + ROWS[19:]
"""Without the solution whose id an earlier one has."""


def _write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def _row(idx, category, steps, wrong):
    return {"idx": idx, "classification": category, "modified_question": "1 + 1?"} | {
        "modified_process": steps,
        "error_steps": wrong,
    }


def _drawn():
    """Scores of the counted rows' steps, right ones a little higher, by category and id."""
    rng = random.Random(0)
    scores = {}
    for row in COUNTED:
        numbers = range(1, len(row["modified_process"]) + 1)
        drawn = tuple(rng.random() ** (1.5 if number in row["error_steps"] else 0.7) for number in numbers)
        scores.setdefault(row["classification"], {})[f"{row['classification']}_{row['idx']}"] = drawn
    return scores


def _by_definition(rows, scores):
    """F1 of right and of wrong steps from precision and recall, in exact arithmetic."""
    called, right = set(), set()
    steps = {(n, k) for n, row in enumerate(rows) for k in range(len(row["modified_process"]))}
    for n, row in enumerate(rows):
        values = scores[row["classification"]][f"{row['classification']}_{row['idx']}"]
        called |= {(n, k) for k, value in enumerate(values) if value > 0.5}
        right |= {(n, k) for k in range(len(values)) if k + 1 not in row["error_steps"]}
    f1 = []
    for found, there in ((called, right), (steps - called, steps - right)):
        precision, recall = (Fraction(len(found & there), max(1, len(whole))) for whole in (found, there))
        f1.append(2 * precision * recall / (precision + recall) if precision + recall else Fraction(0))
    return f1


def test_prm_score_by_hand(tmp_path):
    rows = (
        _row("a", "circular", ["w", "x", "y", "z"], [2, 4]),
        _row("b", "multi_solutions", ["w", "x", "y"], []),
    )
    benchmark = prmbench.load_prmbench(_write(tmp_path / "two.jsonl", *rows))
    scores = {
        "circular": {"circular_a": (0.9, 0.2, 0.4, 0.8)},
        "multi_solutions": {"multi_solutions_b": (0.9, 0.5, 0.6)},
    }
    result = prmbench.measure(benchmark, scores)
    assert result.categories["circular"] == pytest.approx(1 / 2)  # TP, TN, FN and FP are 1 each
    assert result.categories["multi_solutions"] == pytest.approx(4 / 5)  # TP 2, FN 1: 0.5 calls a step wrong
    assert result.overall.mean == pytest.approx((2 / 3 + 2 / 5) / 2)
    assert (result.solutions, result.unscored) == (2, 0)
    assert result.groups == {}


def test_figures_are_those_of_the_definition():
    scores = _drawn()
    result = prmbench.measure(prmbench.load_prmbench(str(DATA)), scores)
    for category in prmbench.CATEGORIES:
        f1, negative = _by_definition([row for row in COUNTED if row["classification"] == category], scores)
        expected = f1 if category == "multi_solutions" else (f1 + negative) / 2
        assert result.categories[category] == pytest.approx(float(expected))
    assert result.overall.mean == pytest.approx(float(sum(_by_definition(COUNTED, scores)) / 2))
    assert result.overall.low < result.overall.mean < result.overall.high
    assert result.groups["simplicity"] == (result.categories["redundency"] + result.categories["circular"]) / 2


def test_odd_solutions_are_counted_as_by_the_authors():
    benchmark = prmbench.load_prmbench(str(DATA))
    assert {name: len(found) for name, found in benchmark.items()} == {
        name: 3 if name == "missing_condition" else 2 for name in prmbench.CATEGORIES
    }
    first = benchmark["multi_solutions"][0]  # the second row with its id is another solution
    assert len(first.steps) == len(ROWS[17]["modified_process"]) != len(ROWS[18]["modified_process"])
    (odd,) = (each for each in benchmark["missing_condition"] if max(each.error_steps) > len(each.process))
    assert odd.labels == (False, True, False, True)


def test_step_numbers_are_cut_off_and_blank_steps_left_out(tmp_path):
    steps = ["1. One.", "Step 2. Two.", " ", "2.5 is less.", "64.", "step 10.  Ten."]
    row = _row("circular_a", "circular", steps, [3, 4])
    ((solution,),) = prmbench.load_prmbench(_write(tmp_path / "one.jsonl", row)).values()
    assert solution.steps == ("One.", "Two.", "2.5 is less.", "64.", "Ten.")
    assert solution.labels == (True, True, False, True, True)
    assert (solution.id, solution.question) == ("circular_a", "a")


def test_solutions_that_cannot_be_scored_do_not_count():
    scores = _drawn()
    scores["deception"] = dict.fromkeys(scores["deception"])
    benchmark = prmbench.load_prmbench(str(DATA))
    result = prmbench.measure(benchmark, scores)
    counted = [row for row in COUNTED if row["classification"] != "deception"]
    assert result.overall.mean == pytest.approx(float(sum(_by_definition(counted, scores)) / 2))
    assert (result.solutions, result.unscored, result.categories["deception"]) == (17, 2, 0)
    assert "17 solutions, without 2 that are too long" in prmbench.markdown("m", result)


def test_a_missing_category_is_named(tmp_path):
    benchmark = prmbench.load_prmbench(_write(tmp_path / "most.jsonl", *ROWS[2:17]))
    scores = {name: {each.id: (0.6,) * len(each.steps) for each in found} for name, found in benchmark.items()}
    result = prmbench.measure(benchmark, scores)
    assert list(result.groups) == ["soundness"]
    assert ", and none of redundency, multi_solutions: " in prmbench.markdown("m", result)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"error_steps": [0]}, "error_steps"),
        ({"error_steps": ["2"]}, "error_steps"),
        ({"classification": "another"}, "classification"),
        ({"modified_process": [" "]}, "every step is blank"),
        ({"modified_question": ""}, "modified_question"),
    ],
)
def test_bad_records_are_refused_by_line(tmp_path, change, complaint):
    with gzip.open(tmp_path / "some.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in (ROWS[0], ROWS[1] | change))
    with pytest.raises(RecordInvalid, match=f"line 2: .*{complaint}"):
        prmbench.load_prmbench(str(tmp_path))
    with pytest.raises(RecordInvalid, match="no solution"):
        prmbench.load_prmbench(_write(tmp_path / "none.jsonl"))


def test_scores_are_kept_and_a_run_goes_on(tmp_path):
    benchmark, console = prmbench.load_prmbench(str(DATA)), Console(file=io.StringIO())
    result = prmbench.evaluate(benchmark, EngineScorer(FakeEngine()), tmp_path, console)
    engine = FakeEngine()
    (tmp_path / "deception.jsonl").unlink()
    (tmp_path / "deception.config.json").unlink()
    assert prmbench.evaluate(benchmark, EngineScorer(engine), tmp_path, console) == result
    assert sum(map(len, engine.batches)) == 2
    record = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert record["overall"]["mean"] == result.overall.mean
    assert record["model"] == "fake"


def test_the_command_shows_the_model_beside_published_figures(tmp_path):
    options = ["prmbench", "--data", str(DATA), "--output", str(tmp_path)]
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 0, shown.output
    header, _, here, *published = [line.strip("| ").split(" | ") for line in shown.stdout.splitlines() if "|" in line]
    assert header[2:] == ["overall", *prmbench.ABBREVIATED.values(), *prmbench.GROUPS]
    assert here[:2] == ["unprm-mini", "here"]
    assert published == [[model, "published", *map(str, row)] for model, row in prmbench.PUBLISHED.items()]


def test_the_published_groups_are_means_of_the_published_categories():
    for _, *row in prmbench.PUBLISHED.values():
        scores = dict(zip(prmbench.CATEGORIES, row[:9], strict=True))
        means = [sum(map(scores.__getitem__, names)) / len(names) for names in prmbench.GROUPS.values()]
        assert row[9:] == pytest.approx(means, abs=0.11)
