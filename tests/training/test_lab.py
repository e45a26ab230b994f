"""The lab: its benchmark, its measures and votes by hand, and a whole small run that is stopped and goes on."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import write_prm
from training import journal
from training.best_of_n import Judged
from training.lab import benchmark, construct, elections, findings, labels, models, run
from training.lab.settings import LabSettings, data_sets
from training.mini.slips import Author
from training.questions import make_mini
from unprm.errors import OutputMismatch
from unprm.mini.checker import first_error
from unprm.mini.domain import parse

TINY = LabSettings(questions=5, evaluated=40, candidates=4, per_level=8, seeds=1, k=8, epochs=1)


def _authored(place, questions, per_question):
    """Candidates by careless authors, as `sample` writes them."""
    rng = random.Random(3)
    records = []
    for question in questions:
        problem = parse(question.problem)
        texts = ["\n".join(Author(rng, 1.0).solve(problem)) for _ in range(per_question)]
        told = [{"text": text, "ids": [], "logprobs": [], "finished": True} for text in texts]
        records.append({"id": question.id, "problem": question.problem, "answer": question.answer, "completions": told})
    journal.write(benchmark.candidates_file(place), {}, records)


def test_the_benchmark_is_balanced_and_says_what_the_checker_says(tmp_path):
    questions = make_mini(60, 5)
    _authored(tmp_path, questions, 12)
    benchmark.write_benchmark(TINY, tmp_path)
    subsets = benchmark.load_benchmark(tmp_path)
    assert list(subsets) == list(benchmark.LEVELS)
    shortest = []
    for samples in subsets.values():
        wrong = [sample for sample in samples if sample.label is not None]
        assert len(wrong) == TINY.per_level
        assert 0 < len(samples) - len(wrong) <= TINY.per_level
        for sample in samples:
            assert first_error(parse(sample.asked.problem), list(sample.asked.steps)) == sample.label
        texts = [(sample.asked.problem, sample.asked.steps) for sample in samples]
        assert len(set(texts)) == len(texts)
        problems = [problem for problem, _ in texts]
        assert max(map(problems.count, problems)) <= 2 * benchmark.PER_QUESTION
        shortest.append(min(len(parse(problem).operations) for problem in problems))
    assert shortest == [2, 3, 4, 6]


def _hits(found, left):
    """Of one level: per seed, the hits of three questions with two wrong solutions and a right one each."""
    return labels.Hits(np.array([[found], [left]], dtype=float), np.array([[[2, 2, 2]], [[1, 1, 1]]], dtype=float))


def test_f1_of_prms_is_compared_on_the_same_questions():
    good = _hits([[2, 2, 1], [2, 2, 2]], [[1, 1, 1], [1, 1, 1]])
    bad = _hits([[0, 1, 0], [0, 1, 0]], [[1, 0, 1], [1, 1, 1]])
    assert good.by_seed() == pytest.approx([2 * (5 / 6) / (11 / 6), 1.0])
    assert good.f1() == pytest.approx(sum(good.by_seed()) / 2)
    same = labels.f1_difference(_hits([[2, 1, 0]], [[1, 1, 0]]), _hits([[2, 1, 0]], [[1, 1, 0]]))
    assert same == labels.Share(0.0, 0.0, 0.0)
    difference = labels.f1_difference(good, bad)
    assert difference.mean == pytest.approx(good.f1() - bad.f1())
    assert 0 < difference.low < difference.mean < difference.high


def test_f1_is_the_mean_over_the_levels():
    both = labels.Hits(np.array([[[[1.0]], [[1.0]]], [[[1.0]], [[0.0]]]]), np.array([[[1.0], [2.0]], [[1.0], [1.0]]]))
    assert both.f1() == 0.5  # 1 and 0


def test_measures_point_where_the_uncertainty_rises(tmp_path):
    problem = next(q for q in make_mini(50, 1) if len(parse(q.problem).operations) == 3)
    steps = parse(problem.problem).solution()
    wrong = [step.replace("= ", "= 9") for step in steps]
    solution = {
        "id": "a", "question": "q", "problem": problem.problem, "gold": problem.answer, "model": "m",
        "steps": [steps[0], wrong[1], wrong[2]], "ends": [2, 6, 8], "correct": False,
        "logprobs": [-0.1, -0.1, -0.1, -3.0, -0.1, -0.1, -0.2, -0.1],
        "mean_step_uncertainty": dict.fromkeys(labels.MEASURES, 0.1),
    }  # fmt: skip
    journal.write(construct.selected_file(tmp_path, "random"), {}, [solution])
    told = {own.measure: own for own in labels.measures(tmp_path)}
    assert told["surprisal_max"].hit == 1
    assert told["surprisal_max"].rank == 0
    assert told["surprisal_max"].chance == pytest.approx(1 / 3)
    # the entropy of four tokens, one of which is unlikely, rises less than that of two against a mean of 0.1
    assert told["entropy"].hit == 0
    assert told["entropy"].rank == 0.5


ANSWERS = (0, 0, 0, 1, 1, 2)
JUDGED = Judged(ANSWERS, tuple(name == 1 for name in ANSWERS), (0.4, 0.4, 0.4, 0.9, 0.8, 0.95))


def test_a_tie_that_only_the_order_decides_counts_by_its_share_of_right_answers():
    level = Judged((0, 0, 1, 1), (False, False, True, True), (0.5, 0.5, 0.5, 0.5))
    assert elections.log_odds(1.0)(level, range(4)) == 0.5
    told = elections.ties([[level]], 4)
    assert told == {"tied": [1], "frequency": [0.5], "mean reward": [0.5], "first appearance": [0]}
    assert told["frequency"] == elections.accuracies([[level]], 4, elections.VOTES["wrf"])


@pytest.mark.parametrize(
    ("prior", "right"),
    [(0.0, True), (2.0, True), (10.0, False)],  # log-odds −0.41 three times, 2.2 and 1.4, 2.9; +10 each: the majority
)
def test_log_odds_add_up(prior, right):
    assert elections.log_odds(prior)(JUDGED, range(6)) == right


def test_without_an_answer_nobody_is_elected():
    nobody = Judged((None, None), (False, False), (0.5, 0.9))
    for rule in (elections.log_odds(1.0), *elections.VOTES.values()):
        assert not rule(nobody, range(2))
    assert elections.ties([[nobody]], 2) == {"tied": [0], "frequency": [0], "mean reward": [0], "first appearance": [0]}


TIED = Judged((0, 1, 1, 1), (False, True, True, True), (0.9, 0.2, 0.3, 0.2))
"""Frequency and reward disagree: WRF gives a half to both classes."""
CLEAR = Judged((0, 0, 0, 1), (True, True, True, False), (0.9, 0.9, 0.9, 0.1))


def test_ties_of_two_classes_end_as_the_tie_break_says():
    told = elections.ties([[TIED, CLEAR]], 4)
    assert told == {"tied": [1, 0], "frequency": [1, 1], "mean reward": [0, 1], "first appearance": [0, 1]}


def test_findings_say_where_ties_are_and_what_breaks_them_best():
    answer = findings.ties([[TIED] * 10]).answer
    assert answer.startswith("Most votes are tied at N = 4: 100.0 %.")
    assert "mean reward does worse (-100.0 [-100.0, -100.0])" in answer
    assert findings.ties([[CLEAR]]).answer == "No vote is tied."


def test_findings_name_all_votes_that_are_equal():
    assert findings.frequencies([[CLEAR]]).answer.endswith("right: all are right, or none.")
    few = Judged((0, 0, 1, 2), (False, False, True, False), (0.1, 0.1, 0.9, 0.2))
    answer = findings.frequencies([[few, few, CLEAR]]).answer
    assert answer.endswith("right: where 25%–50% of them are, prm and weighted with 100.0 % of 2 questions.")


def test_alpha_and_prior_are_chosen_on_other_questions_than_they_are_tried_on():
    hard = Judged((0, 0, 0, 1), (False, False, False, True), (0.4, 0.4, 0.4, 0.9))
    easy = Judged((0, 0, 0, 1), (True, True, True, False), (0.3, 0.3, 0.3, 0.9))
    chosen_on, tried_on = elections.halves([[hard, easy, hard, easy]])
    assert (chosen_on, tried_on) == ([[hard, hard]], [[easy, easy]])
    prior = elections.best(chosen_on, {prior: elections.log_odds(prior) for prior in elections.PRIORS})
    assert elections.accuracies(chosen_on, 4, elections.log_odds(prior)) == [1, 1]
    answer = findings.alphas([[hard, easy, hard, easy]]).answer
    assert "is best on half of the questions; on the others, at N = 4, it does worse" in answer
    assert "the paper's 0.5 is best" in findings.alphas([[CLEAR, CLEAR]]).answer


def test_a_retrained_prm_gets_no_scores_of_the_one_before(tmp_path, monkeypatch):
    """It is refused, in place of being evaluated anew: nobody said that the earlier results may go."""
    monkeypatch.setattr(models, "data_sets", lambda settings: ["UnPRM"])
    monkeypatch.setattr(models, "cpu_count", lambda: 1)
    settings, console = replace(TINY, per_level=1), Console(quiet=True)
    _authored(tmp_path, make_mini(40, 5), 4)
    benchmark.write_benchmark(settings, tmp_path)
    prm = tmp_path / "models" / "UnPRM" / "seed-0"
    write_prm(prm, "UnPRM/seed-0", seed=0, window=1024)
    models.evaluate(settings, tmp_path, console)
    results = sorted(tmp_path.rglob("results.json"))
    before = [path.read_bytes() for path in results]
    models.evaluate(settings, tmp_path, console)
    write_prm(prm, "UnPRM/seed-0", seed=1, window=1024)
    with pytest.raises(OutputMismatch, match=r"UnPRM/seed-0.*digest was"):
        models.evaluate(settings, tmp_path, console)
    assert [path.read_bytes() for path in results] == before
    assert len(results) == 2


@pytest.mark.timeout(900)  # a whole lab: a minute and a half where nothing else runs
def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch):
    kept = {name: data_sets(TINY)[name] for name in ("UnPRM", "DrawnPRM", "Exact")}
    for module in (construct, models, findings):
        monkeypatch.setattr(module, "data_sets", lambda settings: kept)
    console = Console(quiet=True)

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            run.run(TINY, tmp_path, console)
    weights = tmp_path / "models" / "UnPRM" / "seed-0" / "adapter_model.safetensors"
    before = weights.stat().st_mtime_ns
    report = run.run(TINY, tmp_path, console)
    assert weights.stat().st_mtime_ns == before
    stages = [json.loads(line)["id"] for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert stages == ["data sets", "candidates", "training", "evaluation", "findings"]
    told = json.loads((tmp_path / "findings.json").read_text("utf-8"))
    assert all(finding["answer"] and finding["rows"] for finding in told)
    assert {row[0] for row in told[0]["rows"]} == set(kept)
    asked = [record["id"] for record in journal.read(tmp_path / "best-of-n" / "solutions.jsonl")]
    assert len(asked) == TINY.evaluated
    for name in kept:
        place = tmp_path / "best-of-n" / name / "seed-0"
        assert [record["id"] for record in journal.read(place / "elections.jsonl")] == sorted(asked)
        assert all(record["scores"] for record in journal.read(place / "candidates.jsonl"))
    cost = json.loads((tmp_path / "cost.json").read_text("utf-8"))
    assert set(cost["per_solution"]["samples"]) == set(kept) - {"Exact"}
    text = report.read_text("utf-8")
    assert all(finding["question"] in text for finding in told)
    with pytest.raises(OutputMismatch, match="seeds was 1, is 2"):
        run.run(replace(TINY, seeds=2), tmp_path, console)
