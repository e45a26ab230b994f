"""The lab: its benchmark, its measures and votes by hand, and a whole small run that is stopped and goes on."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from research.lab import benchmark, construct, data_findings, elections, findings, labels, models, run, vote_findings
from research.lab import settings as lab_settings
from research.lab.settings import DATA_SETS, LabSettings
from research.mini.slips import Author
from tests.tiny import write_prm
from tests.training import lines
from tests.training.solutions import annotated, selected
from training import resumable
from training.data.questions import make_mini
from training.evaluate.metrics import Share
from training.evaluate.records import JudgedCandidates, ScoredSolution
from training.schema import LabelledSolution, SampledQuestion
from training.settings import AdaptiveSettings
from unprm.errors import OutputMismatch
from unprm.mini.checker import first_error
from unprm.mini.checker import labels as checker_labels
from unprm.mini.domain import parse
from unprm.types import Completion

TINY = LabSettings(
    questions=4,
    evaluated=40,
    candidates=4,
    per_level=8,
    seeds=1,
    bases=("verdicts",),
    k=8,
    adaptive=AdaptiveSettings(first=4, enough=2, most=8, block=4),
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
    return labels.Hits(np.array([[found], [left]], dtype=float), np.array([[[2, 2, 2]], [[1, 1, 1]]], dtype=float))


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
    both = labels.Hits(np.array([[[[1.0]], [[1.0]]], [[[1.0]], [[0.0]]]]), np.array([[[1.0], [2.0]], [[1.0], [1.0]]]))
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
        mean_step_uncertainty=dict.fromkeys(labels.MEASURES, 0.1),
    )  # fmt: skip
    resumable.write(tmp_path / "selected.jsonl", {}, [solution])
    by_measure = {pointer.measure: pointer for pointer in labels.measures(tmp_path / "selected.jsonl")}
    surprisal, entropy = by_measure["surprisal_max"].among_all, by_measure["entropy"].among_all
    assert (surprisal.hits.tolist(), surprisal.counts.tolist()) == ([[1]], [1])
    assert (surprisal.rank, surprisal.chance) == (0, pytest.approx(1 / 3))
    # the entropy of four tokens, one of which is unlikely, rises less than that of two against a mean of 0.1
    assert (entropy.hits.tolist(), entropy.rank) == ([[0]], 0.5)
    # without the last step two are left
    assert by_measure["entropy"].before_last.rank == 1
    assert by_measure["entropy"].before_last.chance == 0.5


def test_an_error_in_the_last_step_is_none_that_a_search_could_try(tmp_path):
    problem = next(q for q in make_mini(50, 1) if len(parse(q.problem).operations) == 3)
    steps = parse(problem.problem).solution()
    solution = selected(
        problem=problem.problem, steps=(*steps[:2], steps[2].replace("= ", "= 9")), ends=(2, 4, 9),
        logprobs=(*[-0.1] * 8, -3.0), mean_step_uncertainty=dict.fromkeys(labels.MEASURES, 0.1),
    )  # fmt: skip
    resumable.write(tmp_path / "selected.jsonl", {}, [solution])
    for pointer in labels.measures(tmp_path / "selected.jsonl"):
        assert pointer.among_all.counts.sum() == 1
        assert pointer.before_last.counts.sum() == 0


ANSWERS = (0, 0, 0, 1, 1, 2)
JUDGED = JudgedCandidates("q", ANSWERS, tuple(name == 1 for name in ANSWERS), (0.4, 0.4, 0.4, 0.9, 0.8, 0.95))


def test_a_tie_that_only_the_order_decides_counts_by_its_share_of_right_answers():
    level = JudgedCandidates("q", (0, 0, 1, 1), (False, False, True, True), (0.5, 0.5, 0.5, 0.5))
    assert elections.log_odds(1.0)(level, range(4)) == 0.5
    ties = elections.ties([[level]], 4)
    assert ties == {"tied": [[1]], "frequency": [[0.5]], "mean reward": [[0.5]], "first appearance": [[0]]}
    assert ties["frequency"] == elections.outcomes([[level]], 4, elections.VOTES["wrf"])


@pytest.mark.parametrize(
    ("prior", "right"),
    [(0.0, True), (2.0, True), (10.0, False)],  # log-odds −0.41 three times, 2.2 and 1.4, 2.9; +10 each: the majority
)
def test_log_odds_add_up(prior, right):
    assert elections.log_odds(prior)(JUDGED, range(6)) == right


def test_without_an_answer_nobody_is_elected():
    nobody = JudgedCandidates("q", (None, None), (False, False), (0.5, 0.9))
    for rule in (elections.log_odds(1.0), *elections.VOTES.values()):
        assert not rule(nobody, range(2))
    assert not any(shares.any() for shares in elections.ties([[nobody]], 2).values())


TIED = JudgedCandidates("q", (0, 1, 1, 1), (False, True, True, True), (0.9, 0.2, 0.3, 0.2))
"""Frequency and reward disagree: WRF gives a half to both classes."""
CLEAR = JudgedCandidates("q", (0, 0, 0, 1), (True, True, True, False), (0.9, 0.9, 0.9, 0.1))


def test_ties_of_two_classes_end_as_the_tie_break_says():
    ties = {name: shares[0].tolist() for name, shares in elections.ties([[TIED, CLEAR]], 4).items()}
    assert ties == {"tied": [1, 0], "frequency": [1, 1], "mean reward": [0, 1], "first appearance": [0, 1]}


def test_findings_say_where_ties_are_and_what_breaks_them_best():
    answer = vote_findings.ties([[TIED] * 10]).answer
    assert answer.startswith("Most votes are tied at N = 4: 100.0 (100.0–100.0) in %")
    assert "breaking ties by mean reward is worse than by frequency (-100.0 [-100.0, -100.0]" in answer
    assert vote_findings.ties([[CLEAR]]).answer == "No vote is tied."


FEW = JudgedCandidates("q", (0, 0, 1, 2), (False, False, True, False), (0.1, 0.1, 0.9, 0.2))
"""The reward alone finds the right answer."""


def test_votes_are_compared_where_there_are_questions_enough():
    judged = [[FEW] * 12 + [CLEAR] * 3]
    answer = vote_findings.frequencies(judged, elections.votes_taken(judged)).answer
    # majority takes the two wrong ones, hmr sees half of the candidates agree, wrf half frequency and half reward
    assert "25%–50%, 12 questions: better: prm (+100.0 [+100.0, +100.0]" in answer
    assert "can't be told apart from it: hmr (+0.0 " in answer  # 12 questions don't show that it is as good
    assert "75%–100%" not in answer
    assert "fewer than 10 questions, votes are not compared" in answer


def test_no_vote_is_called_better_for_what_a_single_question_says():
    judged = [[FEW] + [CLEAR] * 39]
    answer = vote_findings.votes(elections.votes_taken(judged)).answer
    largest = answer.partition("At N = 4: ")[2]
    assert "is better" not in largest
    assert "is worse" not in largest
    assert "hmr and prm can't be told apart (-2.5 [" in largest


def test_votes_differ_by_seed_as_well(monkeypatch):
    other = JudgedCandidates("q", FEW.classes, FEW.correct, (0.9, 0.9, 0.1, 0.2))
    same, split = [[FEW] * 40] * 3, [[FEW] * 40, [FEW] * 40, [other] * 40]
    for judged, outcome in ((same, "weighted is better than majority"), (split, "weighted and majority can't be told")):
        assert outcome in vote_findings.votes(elections.votes_taken(judged)).answer


def test_a_prior_is_chosen_on_other_questions_than_it_is_tried_on():
    hard = JudgedCandidates("q", (0, 0, 0, 1), (False, False, False, True), (0.4, 0.4, 0.4, 0.9))
    easy = JudgedCandidates("q", (0, 0, 0, 1), (True, True, True, False), (0.3, 0.3, 0.3, 0.9))
    judged = [[hard, easy] * 20]
    chosen_on, tried_on = elections.halves(judged)
    assert (chosen_on, tried_on) == ([[hard] * 20], [[easy] * 20])
    prior = elections.best(chosen_on, {prior: elections.log_odds(prior) for prior in elections.PRIORS})
    assert elections.outcomes(chosen_on, 4, elections.log_odds(prior)).tolist() == [[1] * 20]
    found = vote_findings.another_vote(judged, elections.votes_taken(judged))
    assert "log-odds is worse than hmr (-100.0 [" in found.answer
    assert found.rows[-1][1] == "100.0 (100.0–100.0)"


def test_alphas_are_held_against_the_papers():
    answer = vote_findings.alphas([[FEW] * 30]).answer
    assert "against the paper's 0.5 with " in answer
    assert "as good: 0.6 (" in answer or "better: 0.6 (" in answer
    assert "corrected" in answer


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
                mean_step_uncertainty=dict.fromkeys(labels.MEASURES, 0.1),
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
            ScoredSolution(s.id, tuple(judge(s.label < 0 or k < s.label) for k in range(len(s.steps)))) for s in samples
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
    by_question = {
        finding["question"]: finding for finding in json.loads((tmp_path / "findings.json").read_text("utf-8"))
    }
    first, second, both, *rest = by_question.values()
    assert first["question"] == (
        "Which data makes the best PRM, on the base that saw verdicts in its pretraining, at the threshold 0.5?"
    )
    at_chosen, rest = rest[:3], rest[3:]
    assert all(
        finding["question"].endswith("at the threshold that is best on other questions?") for finding in at_chosen
    )
    for name in ("EpicPRM", "BayesPRM", "Exact"):
        assert f"{name} (+" in first["answer"].partition("can't")[0]
    assert "BayesPRM is better than EpicPRM" in second["answer"]
    assert "EpicPRM and UnPRM" in both["answer"].partition("other way round: ")[2].partition("\n")[0]
    assert "The gap to UnPRM differs between the bases for " in both["answer"]
    measures, searches, *votes = rest
    assert "Among all steps but the last (" in measures["answer"]
    bayes = next(row for row in searches["rows"] if row[0] == "bayes")
    assert bayes[searches["columns"].index("first error found")] == "100.0 (100.0–100.0)"
    assert "better: bayes (+" in searches["answer"]
    saved = [bayes[searches["columns"].index(f"{what} saved against adaptive_binary in % (95 % interval)")]
             for what in ("verified steps", "samples")]  # fmt: skip
    assert saved == ["0.0 (0.0–0.0)", "20.0 (20.0–20.0)"]
    assert len(votes) == 2 * 2 * 5  # bases, data sets, findings
    assert all(finding["question"].startswith("With PRMs of ") for finding in votes)


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
    written = json.loads((tmp_path / "findings.json").read_text("utf-8"))
    assert all(finding["answer"] and finding["rows"] for finding in written)
    assert {row[0] for row in written[0]["rows"]} == set(kept)
    question_ids = [record["id"] for record in lines.read(tmp_path / "best-of-n" / "solutions.jsonl")]
    assert len(question_ids) == TINY.evaluated
    assert not (tmp_path / "best-of-n" / "DrawnPRM-verdicts").exists()
    for name in ("UnPRM", "Exact"):
        place = tmp_path / "best-of-n" / f"{name}-verdicts" / "seed-0"
        assert sorted(record["id"] for record in lines.read(place / "candidates.jsonl")) == sorted(question_ids)
        assert all(record["scores"] for record in lines.read(place / "candidates.jsonl"))
    text = report.read_text("utf-8")
    assert all(finding["question"] in text for finding in written)
    with pytest.raises(OutputMismatch, match="seeds was 1, is 2"):
        run.run_lab(replace(TINY, seeds=2), tmp_path, console)
