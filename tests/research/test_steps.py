"""What scores know of first errors: the figures of recorded scores, and of what needs no model."""

import json

import pytest

from research import recorded_scores, steps
from tests.support import TEST_DATA

RECORDED = TEST_DATA / "recorded"
LATER = 2
"""Steps after a first error, which no figure depends on."""


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """ProcessBench's places of errors, with texts of our own: later steps are longer. One sample has no scores."""
    place = tmp_path_factory.mktemp("benchmark")
    for name, rows in recorded_scores.read([RECORDED]).items():
        made = [_sample(row.id, row.label, len(next(iter(row.scores.values())))) for row in rows]
        made.append(made[0] | {"id": f"{name}-100000"})
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made), "utf-8")
    return str(place)


def _sample(name, label, scored):
    count = scored + LATER if label >= 0 else scored
    texts = ["x" * (40 + 20 * place) for place in range(count)]
    about = {"id": name, "problem": f"problem of {name}", "steps": texts, "label": label}
    return about | {"final_answer_correct": label < 0}


def test_recorded_scores_tell_errors_where_length_and_place_cannot(benchmark, tmp_path):
    sets, published = steps.load_sets(benchmark, [RECORDED])
    table = steps.write(sets, steps.baselines(sets) | published, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "steps.json").read_text("utf-8"))
    assert (tmp_path / "out" / "steps.md").read_text("utf-8") == table
    measured = recorded_scores.measure(recorded_scores.read([RECORDED]))
    for name, by_score in found.items():
        assert by_score["place of the step"]["matched"]["mean"] == 0.5
        assert by_score["Qwen2.5-Math-PRM-7B"]["matched"]["low"] > 0.9
        for model, result in measured.items():
            assert by_score[model]["f1"]["mean"] == pytest.approx(result.results["fixed"].subsets[name].f1)
    for name, other in (("gsm8k", "math"), ("math", "gsm8k")):
        for model, result in measured.items():
            assert found[name][model]["threshold"] == result.best[other][0]


def test_only_solutions_with_recorded_scores_are_taken_up_to_their_errors(benchmark):
    every, few = steps.load_sets(benchmark, [])[0], steps.load_sets(benchmark, [RECORDED])[0]
    for name, solutions in few.items():
        assert len(solutions) == len(every[name]) - 1
        assert all(len(each.steps) == each.label + 1 for each in solutions if each.label >= 0)


def test_solutions_without_scores_count_for_nothing(benchmark):
    (solution, *_) = steps.load_sets(benchmark, [])[0]["gsm8k"]
    assert steps.scored_steps([solution], {solution.id: None}) == []
    (made,) = steps.scored_steps([solution], {solution.id: (0.5,) * 50})
    assert made.lengths == tuple(map(len, solution.steps))
    assert len(made.scores) == len(solution.steps)
