"""The lab: its benchmark, its measures and votes by hand, and a whole small run that is stopped and goes on."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from research.lab import (
    benchmark,
    construct,
    data_findings,
    findings,
    lab_settings,
    labels,
    measures,
    models,
    run,
    vote_findings,
)
from research.lab.lab_settings import DATA_SETS, LabSettings
from research.mini.slips import Author
from tests.support import tables
from tests.tiny import write_prm
from tests.training import lines
from tests.training.solutions import annotated, selected
from training import resumable
from training.data.questions import make_mini
from training.evaluate.metrics import Share
from training.evaluate.records import JudgedCandidates, SolutionScores
from training.schema import LabelledSolution, SampledQuestion
from training.stage_settings import AdaptiveSettings
from unprm.errors import OutputMismatch
from unprm.mini.checker import first_error
from unprm.mini.checker import labels as checker_labels
from unprm.mini.domain import parse
from unprm.types import Completion
from unprm.uncertainty import MEASURES

TINY = LabSettings(
    questions=4,
    evaluated=24,
    candidates=4,
    per_level=4,
    seeds=1,
    bases=("verdicts",),
    k=8,
    n=3,
    adaptive=AdaptiveSettings(first=4, enough=2, most=4, block=4),
    epochs=1,
)


def _authored(place, questions, per_question):
    """Candidates by careless authors, as `sample` writes them."""
    rng = random.Random(3)
    records = []
    for question in questions:
        problem = parse(question.problem)
        texts = ["\n".join(Author(rng, 1.0).solve(problem)) for _ in range(per_question)]
        solutions = tuple(Completion(text, (), (), finished=True) for text in texts)
        records.append(SampledQuestion(question.id, question.problem, question.gold_answer, "m", (), solutions))
    resumable.write(benchmark.candidates_file(place), {}, records)


def test_the_benchmark_is_balanced_and_says_what_the_checker_says(tmp_path):
    questions = make_mini(60, 5)
    _authored(tmp_path, questions, 12)
    benchmark.write_benchmark(TINY, tmp_path)
    subsets = benchmark.load_benchmark(tmp_path)
    assert list(subsets) == list(benchmark.LEVELS)
    shortest = []
    for samples in subsets.values():
        wrong = [sample for sample in samples if sample.first_error is not None]
        assert len(wrong) == TINY.per_level
        assert 0 < len(samples) - len(wrong) <= TINY.per_level
        for sample in samples:
            assert first_error(parse(sample.problem), sample.steps) == sample.first_error
        texts = [(sample.problem, sample.steps) for sample in samples]
        assert len(set(texts)) == len(texts)
        problems = [problem for problem, _ in texts]
        assert max(map(problems.count, problems)) <= 2 * benchmark.PER_QUESTION
        shortest.append(min(len(parse(problem).operations) for problem in problems))
    assert shortest == [2, 3, 4, 6]


def _hits(found, left):
    """Of one level: per seed, the hits of three questions with two wrong solutions and a right one each."""
    return labels.FirstErrorHits(
        np.array([[found], [left]], dtype=float), np.array([[[2, 2, 2]], [[1, 1, 1]]], dtype=float)
    )


def test_f1_of_prms_is_compared_on_the_same_questions():
    good = _hits([[2, 2, 1], [2, 2, 2]], [[1, 1, 1], [1, 1, 1]])
    assert good.by_seed() == pytest.approx([2 * (5 / 6) / (11 / 6), 1.0])
    assert good.f1().value == pytest.approx(sum(good.by_seed()) / 2)
    # the question that both fail on comes and goes in both alike
    one, other = _hits([[2, 0, 2]], [[1, 1, 1]]), _hits([[2, 0, 2]], [[1, 1, 1]])
    assert one.f1().interval().low < 0.6
    assert (one.f1() - other.f1()).interval() == Share(0.0, 0.0, 0.0)
    assert (good.f1() - one.f1()).variance == pytest.approx(np.var(good.by_seed(), ddof=1) / 2)


def test_f1_is_the_mean_over_the_levels():
    both = labels.FirstErrorHits(
        np.array([[[[1.0]], [[1.0]]], [[[1.0]], [[0.0]]]]), np.array([[[1.0], [2.0]], [[1.0], [1.0]]])
    )
    assert both.f1().value == 0.5  # 1 and 0


def test_a_threshold_is_chosen_on_the_questions_that_it_is_not_tried_on():
    # two thresholds; questions 0 and 2 are all found with the first, 1 and 3 with the second
    found = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=float)
    hits = np.stack([found, np.ones_like(found)], axis=1)[:, :, None, None]  # right ones are always left alone
    counts = np.ones((2, 1, 4))
    assert labels.at_chosen(hits, counts).hits[0].sum() == 0
    # one threshold is better for all, another for each seed
    better = np.array([[[1, 1, 1, 1], [0, 0, 0, 0]], [[0, 0, 0, 0], [1, 1, 1, 0]]], dtype=float)
    hits = np.stack([better, np.ones_like(better)], axis=1)[:, :, None]
    assert labels.at_chosen(hits, counts).by_seed() == pytest.approx([1, 2 * 0.75 / 1.75])


def test_measures_point_where_the_uncertainty_rises(tmp_path):
    problem = next(q for q in make_mini(50, 1) if len(parse(q.problem).operations) == 3)
    steps = parse(problem.problem).solution()
    wrong = [step.replace("= ", "= 9") for step in steps]
    solution = selected(
        problem=problem.problem, steps=(steps[0], wrong[1], wrong[2]), ends=(2, 6, 8),
        logprobs=(-0.1, -0.1, -0.1, -3.0, -0.1, -0.1, -0.2, -0.1),
        mean_step_uncertainty=dict.fromkeys(MEASURES, 0.1),
    )  # fmt: skip
    resumable.write(tmp_path / "selected.jsonl", {}, [solution])
    by_measure = measures.pointers(tmp_path / "selected.jsonl")
    surprisal, entropy = by_measure["surprisal_max"].among_all, by_measure["entropy"].among_all
    assert (surprisal.hits.tolist(), surprisal.counts.tolist()) == ([1], [1])
    assert surprisal.chance == pytest.approx(1 / 3)
    # the entropy of four tokens, one of which is unlikely, rises less than that of two against a mean of 0.1
    assert entropy.hits.tolist() == [0]
    # without the last step two are left
    assert by_measure["entropy"].before_last.hits.tolist() == [0]
    assert by_measure["entropy"].before_last.chance == 0.5


def test_an_error_in_the_last_step_is_none_that_a_search_could_try(tmp_path):
    problem = next(q for q in make_mini(50, 1) if len(parse(q.problem).operations) == 3)
    steps = parse(problem.problem).solution()
    solution = selected(
        problem=problem.problem, steps=(*steps[:2], steps[2].replace("= ", "= 9")), ends=(2, 4, 9),
        logprobs=(*[-0.1] * 8, -3.0), mean_step_uncertainty=dict.fromkeys(MEASURES, 0.1),
    )  # fmt: skip
    resumable.write(tmp_path / "selected.jsonl", {}, [solution])
    for pointer in measures.pointers(tmp_path / "selected.jsonl").values():
        assert pointer.among_all.counts.sum() == 1
        assert pointer.before_last.counts.sum() == 0


FEW = JudgedCandidates("q", (0, 0, 1, 2), (False, False, True, False), (0.1, 0.1, 0.9, 0.2))
"""The reward alone finds the right answer."""
CLEAR = JudgedCandidates("q", (0, 0, 0, 1), (True, True, True, False), (0.9, 0.9, 0.9, 0.1))


def _last_row(judged):
    """What the finding about votes says of the largest N."""
    (rows,) = tables(vote_findings.votes(judged, "With these"))
    return rows[-1]


def test_no_vote_is_called_better_for_what_a_single_question_says():
    row = _last_row([[FEW] + [CLEAR] * 39])
    assert (row["N"], row["prm in % (95 % interval)"]) == ("4", "100.0 (100.0–100.0)")
    assert row["hmr − prm"].startswith("-2.5 [")
    assert not row["hmr − prm"].endswith(("p < 0.001", "as good"))


def test_votes_differ_by_seed_as_well():
    other = JudgedCandidates("q", FEW.classes, FEW.correct, (0.9, 0.9, 0.1, 0.2))
    same, split = [[FEW] * 40] * 3, [[FEW] * 40, [FEW] * 40, [other] * 40]
    assert _last_row(same)["weighted − majority"] == "+100.0 [+100.0, +100.0], p < 0.001"
    assert not _last_row(split)["weighted − majority"].endswith("p < 0.001")


def test_alphas_are_held_against_the_papers():
    page = vote_findings.alphas([[FEW] * 30], "With these")
    (rows,) = tables(page)
    against = {row["α"]: row["against 0.5, points"] for row in rows}
    assert against["0.6"] == "+100.0 [+100.0, +100.0], p < 0.001"  # with 0.5 frequency breaks a tie
    assert against["0.5"] == ""
    assert "corrected" in page


def test_a_retrained_prm_gets_no_scores_of_the_one_before(tmp_path, monkeypatch):
    """It is refused, in place of being evaluated anew: nobody said that the earlier results may go."""
    monkeypatch.setattr(models, "DATA_SETS", {"UnPRM": DATA_SETS["UnPRM"]})
    monkeypatch.setattr(models, "cpu_count", lambda: 1)
    settings, console = replace(TINY, per_level=1), Console(quiet=True)
    _authored(tmp_path, make_mini(40, 5), 4)
    benchmark.write_benchmark(settings, tmp_path)
    prm = tmp_path / "models" / "UnPRM-verdicts" / "seed-0"
    write_prm(prm, "UnPRM-verdicts/seed-0", seed=0, window=1024)
    models.evaluate(settings, tmp_path, console)
    results = sorted(tmp_path.rglob("results.json"))
    before = [path.read_bytes() for path in results]
    models.evaluate(settings, tmp_path, console)
    write_prm(prm, "UnPRM-verdicts/seed-0", seed=1, window=1024)
    with pytest.raises(OutputMismatch, match=r"UnPRM-verdicts/seed-0.*digest was"):
        models.evaluate(settings, tmp_path, console)
    assert [path.read_bytes() for path in results] == before
    assert len(results) == 2


SKILL = {
    "verdicts": {"UnPRM": 0.2, "UnPRM-literal": 0.2, "EpicPRM": 0.9, "BayesPRM": 0.9, "Exact": 0.9},
    "text": {"UnPRM": 0.9, "UnPRM-literal": 0.2, "EpicPRM": 0.2, "BayesPRM": 0.7, "Exact": 0.8},
}
"""How often a made-up PRM knows what a step is worth."""


def _made_up_lab(place, settings):
    """Everything that findings are made of, with PRMs that know a step by chance."""
    _authored(place, make_mini(40, 5), 8)
    benchmark.write_benchmark(settings, place)
    rng = random.Random(1)
    for base, skills in SKILL.items():
        for name, skill in skills.items():
            for seed in range(settings.seeds):
                _made_up_results(place, f"{name}-{base}/seed-{seed}", random.Random(f"{name}{seed}"), skill)
    solutions = []
    for question in make_mini(90, 9):
        problem = parse(question.problem)
        steps = tuple(Author(rng, 1.0).solve(problem))
        ends = tuple(6 * (k + 1) for k in range(len(steps)))
        solutions.append(
            selected(
                id=question.id, question=question.id, problem=question.problem, steps=steps, ends=ends,
                logprobs=tuple(-rng.random() for _ in range(ends[-1])), correct=first_error(problem, steps) is None,
                mean_step_uncertainty=dict.fromkeys(MEASURES, 0.1),
            )
        )  # fmt: skip
    resumable.write(construct.selected_file(place, "random"), {}, solutions)
    true = {solution.id: tuple(checker_labels(parse(solution.problem), solution.steps)) for solution in solutions}
    for search in ("uncertainty", "adaptive_binary", "uncertainty-literal", "bayes"):
        path = construct.annotated(place, "uncertainty") / f"{search}.jsonl"
        labelled = [
            annotated(
                tried=1, samples=8 if search == "bayes" else 10, rank=0,
                id=s.id, question=s.question, problem=s.problem, steps=s.steps, correct=s.correct,
                labels=true[s.id] if s.correct or search == "bayes" else (False,) * len(s.steps),
            )
            for s in solutions
        ]  # fmt: skip
        resumable.write(path, {"share_prefixes": False, "search": search}, labelled)
        resumable.write(path.with_suffix(".unresolved.jsonl"), {}, [])
        resumable.write(path.with_suffix(".questions.jsonl"), {}, [])
    for name in SKILL["text"]:
        data = [LabelledSolution(s.problem, s.steps, true[s.id]) for s in solutions]
        resumable.write_lines(construct.data_file(place, name), data)


def _made_up_results(place, prm, rng, skill):
    def judge(right):
        known = rng.random() < skill
        return (0.9 if right else 0.1) if known else rng.random()

    for subset, samples in benchmark.load_benchmark(place).items():
        scored = [
            SolutionScores(s.id, tuple(judge(s.label < 0 or k < s.label) for k in range(len(s.steps)))) for s in samples
        ]
        resumable.write(place / "processbench" / prm / f"{subset}.jsonl", {}, scored)
    candidates = []
    for record in lines.read(benchmark.candidates_file(place)):
        answers = [completion["text"].rpartition(" ")[2] for completion in record["completions"][:4]]
        correct = [f"{{{record['answer']}}}" in answer for answer in answers]
        classes = [answers.index(answer) for answer in answers]
        rewards = tuple(judge(right) for right in correct)
        candidates.append(JudgedCandidates(record["id"], tuple(classes), tuple(correct), rewards))
    resumable.write(place / "best-of-n" / prm / "candidates.jsonl", {}, candidates)


def test_findings_answer_for_each_base_and_for_both(tmp_path):
    settings = replace(TINY, seeds=3, bases=("verdicts", "text"))
    _made_up_lab(tmp_path, settings)
    with pytest.MonkeyPatch.context() as patch:
        for module in (findings, data_findings):
            patch.setattr(module, "DATA_SETS", {name: DATA_SETS[name] for name in SKILL["text"]})
        findings.write(settings, tmp_path)
    page = (tmp_path / "findings.md").read_text("utf-8")
    questions, made = re.findall("^## (.*)$", page, re.MULTILINE), tables(page)
    assert len(made) == len(questions) == 2 * 2 + 2 + 2 * 2 * 2  # bases and thresholds; bases, data sets, findings
    start = "Which data makes the best PRM, on the base that "
    assert questions[0] == start + "saw verdicts in its pretraining, at the threshold 0.5?"
    assert questions[3] == start + "never saw a verdict, at the threshold that is best on other questions?"
    against = {row["data set"]: row["F1 against others, points"] for row in made[0]}
    assert against["UnPRM"] == ""
    for name in ("EpicPRM", "BayesPRM", "Exact"):
        assert against[name].startswith("UnPRM: +")
    assert "; EpicPRM: " in against["BayesPRM"]
    assert [row["measure"] for row in made[4]] == ["a random step", *MEASURES]
    bayes = next(row for row in made[5] if row["search"] == "bayes")
    assert bayes["first error found"] == "100.0 (100.0–100.0)"
    assert bayes["first error found, against adaptive_binary, points"].startswith("+")
    saved = [bayes[f"{what} saved against adaptive_binary in % (95 % interval)"]
             for what in ("verified steps", "samples")]  # fmt: skip
    assert saved == ["0.0 (0.0–0.0)", "20.0 (20.0–20.0)"]
    assert all(question.startswith("With PRMs of ") for question in questions[6:])


@pytest.mark.timeout(900)  # a whole lab: a minute and a half where nothing else runs
def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch):
    kept = {name: DATA_SETS[name] for name in ("UnPRM", "DrawnPRM", "EpicPRM", "Exact")}
    for module in (lab_settings, construct, models, findings, data_findings):
        monkeypatch.setattr(module, "DATA_SETS", kept)
    monkeypatch.setattr(construct, "SELECTIONS", ("uncertainty", "random"))
    console = Console(quiet=True)

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            run.run_lab(TINY, tmp_path, console)
    weights = tmp_path / "models" / "UnPRM-verdicts" / "seed-0" / "adapter_model.safetensors"
    before = weights.stat().st_mtime_ns
    report = run.run_lab(TINY, tmp_path, console)
    assert weights.stat().st_mtime_ns == before
    stages = [json.loads(line)["id"] for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert stages == ["data sets", "candidates", "training", "evaluation", "findings"]
    written = (tmp_path / "findings.md").read_text("utf-8")
    assert {row["data set"] for row in tables(written)[0]} == set(kept)
    question_ids = [record["id"] for record in lines.read(benchmark.candidates_file(tmp_path))]
    assert len(question_ids) == TINY.evaluated
    assert not (tmp_path / "best-of-n" / "DrawnPRM-verdicts").exists()
    for name in ("UnPRM", "Exact"):
        place = tmp_path / "best-of-n" / f"{name}-verdicts" / "seed-0"
        assert sorted(record["id"] for record in lines.read(place / "candidates.jsonl")) == sorted(question_ids)
        assert all(record["scores"] for record in lines.read(place / "candidates.jsonl"))
    assert written in report.read_text("utf-8")
    with pytest.raises(OutputMismatch, match="seeds was 1, is 2"):
        run.run_lab(replace(TINY, seeds=2), tmp_path, console)
