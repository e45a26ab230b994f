"""Best-of-N: judged candidates, draws, and votes against what can be counted by hand."""

import io
import itertools
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from training import best_of_n as bench
from training import journal, pool
from training.best_of_n import Judged
from training.evaluation import app
from training.scorers import EngineScorer
from training.settings import Reading
from unprm.engines.fake import FakeEngine
from unprm.equivalence import Equivalence
from unprm.errors import OutputMismatch, RecordInvalid


@pytest.fixture(scope="module")
def equivalence():
    with Equivalence() as made:
        yield made


def _quiet():
    return Console(file=io.StringIO())


def _file(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


ROW = {
    "question": "What is 1/2 + 1/4?",
    "gold": "3/4",
    "candidates": [
        {"text": "It is \\boxed{0.75}.", "rm": 2.5},
        {"text": "It is \\boxed{\\frac{1}{6}}.", "rm": -4},
        {"text": "It is \\boxed{\\frac34}.", "rm": 0.5},
        {"text": "I can't tell.", "rm": 3},
    ],
}


def test_candidates_are_judged_as_mathematics_and_given_rewards_keep_their_order(tmp_path, equivalence):
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW]), "rm")
    (judged,) = bench.judge(questions, None, equivalence, tmp_path / "out", _quiet())
    assert judged.correct == (True, False, True, False)
    assert judged.classes[0] == judged.classes[2] != judged.classes[1]
    assert judged.classes[3] is None
    assert sorted(range(4), key=judged.rewards.__getitem__) == [1, 2, 0, 3]
    assert all(0 < reward < 1 for reward in judged.rewards)


def test_a_model_scores_them_and_a_second_run_asks_nothing(tmp_path, equivalence):
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW, ROW | {"id": 7}]))
    engine = FakeEngine()
    first = bench.judge(questions, EngineScorer(engine), equivalence, tmp_path / "out", _quiet())
    calls = len(engine.batches)
    assert calls == 2
    assert bench.judge(questions, EngineScorer(engine), equivalence, tmp_path / "out", _quiet()) == first
    assert len(engine.batches) == calls
    asked = engine.format.encode(ROW["question"], ["It is \\boxed{0.75}."])
    assert first[0].rewards[0] == engine.score([asked]).scores[0][0]


def test_equal_solutions_are_scored_once(tmp_path, equivalence):
    texts = ["It is \\boxed{1}.", "It is \\boxed{2}.", "It is \\boxed{1}.", " "]
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW | {"candidates": [{"text": text} for text in texts]}]))
    engine = FakeEngine()
    (judged,) = bench.judge(questions, EngineScorer(engine), equivalence, tmp_path / "out", _quiet())
    assert [len(batch) for batch in engine.batches] == [2]
    assert judged.rewards[0] == judged.rewards[2] != judged.rewards[1]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_judged_candidates_are_kept_by_the_questions_names(tmp_path, equivalence, names):
    """Else the draws of a question would depend on which was judged first."""
    texts = {"a": ["\\boxed{1}"], "b": ["\\boxed{1}", "\\boxed{2}"]}
    rows = [ROW | {"id": name, "candidates": [{"text": text} for text in texts[name]]} for name in names]
    questions = pool.load(_file(tmp_path / "c.jsonl", rows))
    judged = bench.judge(questions, EngineScorer(FakeEngine()), equivalence, tmp_path / "out", _quiet())
    assert [len(own.classes) for own in judged] == [1, 2]


def test_solutions_without_steps_or_over_the_window_have_no_reward(tmp_path, equivalence):
    row = ROW | {"candidates": [{"text": " "}, {"text": "\\boxed{1}" + "x" * 500}, {"text": "\\boxed{3/4}"}]}
    questions = pool.load(_file(tmp_path / "c.jsonl", [row]))
    scorer = EngineScorer(FakeEngine(max_tokens=200))
    (judged,) = bench.judge(questions, scorer, equivalence, tmp_path / "out", _quiet())
    assert judged.rewards[:2] == (None, None)
    assert judged.rewards[2] > 0


def test_a_vote_that_needs_rewards_of_which_there_is_none_is_not_right():
    judged = bench.Judged((0, 1), (True, True), (None, None))
    assert not bench.elects_right("wrf", 0.5, judged, [0, 1])
    assert bench.elects_right("majority", 0.5, judged, [0, 1])
    assert bench.elects_right("wrf", 0.5, judged, [1])  # unanimous


def test_step_scores_are_kept_where_there_are_any(tmp_path, equivalence):
    texts = ["So 1 + 1 = 2.\n\nThe answer is \\boxed{2}.", " ", "\\boxed{1}" + "x" * 500]
    row = ROW | {"candidates": [{"text": text, "rm": 0.5} for text in texts]}
    path = _file(tmp_path / "c.jsonl", [row])
    engine = FakeEngine(max_tokens=200)
    questions = pool.load(path)
    (judged,) = bench.judge(questions, EngineScorer(engine), equivalence, tmp_path / "model", _quiet())
    (record,) = journal.read(tmp_path / "model" / "candidates.jsonl")
    assert record["scores"][1:] == [None, None]
    assert len(record["scores"][0]) == 2
    assert min(record["scores"][0]) == judged.rewards[0]
    bench.judge(pool.load(path, "rm"), None, equivalence, tmp_path / "given", _quiet())
    (given,) = journal.read(tmp_path / "given" / "candidates.jsonl")
    assert given["scores"] is None


def test_a_run_that_was_killed_before_step_scores_were_kept_goes_on(tmp_path, equivalence):
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW | {"id": "a"}, ROW | {"id": "b"}]))
    engine = FakeEngine()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = bench.evaluate(questions, EngineScorer(engine), equivalence, whole, _quiet())
    (whole / "candidates.config.json").rename(_made(killed) / "candidates.config.json")
    first = next(iter(journal.read(whole / "candidates.jsonl")))
    del first["scores"]
    _file(killed / "candidates.jsonl", [first])
    calls = len(engine.batches)
    assert bench.evaluate(questions, EngineScorer(engine), equivalence, killed, _quiet()) == expected
    assert len(engine.batches) == calls + 1
    assert ["scores" in own for own in journal.read(killed / "candidates.jsonl")] == [False, True]
    assert (killed / "elections.jsonl").read_text() == (whole / "elections.jsonl").read_text()


def _made(place):
    place.mkdir()
    return place


def test_each_question_is_told_with_the_votes_that_are_right(tmp_path, equivalence):
    texts = ["\\boxed{1}", "\\boxed{1}", "\\boxed{2}", "none"]
    rewards = [0.1, 0.2, 0.6, 0.9]
    candidates = [{"text": text, "rm": reward} for text, reward in zip(texts, rewards, strict=True)]
    rows = [{"id": gold, "problem": f"{gold}?", "gold": gold, "candidates": candidates} for gold in ("2", "1", "3")]
    questions = pool.load(_file(tmp_path / "c.jsonl", rows), "rm")
    for alpha, by_wrf in ((0.0, "1"), (1.0, "2")):
        bench.evaluate(questions, None, equivalence, tmp_path / "out", _quiet(), alpha)
        told = {record["id"]: record for record in journal.read(tmp_path / "out" / "elections.jsonl")}
        assert [(own["problem"], own["candidates"], own["right"]) for own in told.values()] == [
            ("1?", 4, 2),
            ("2?", 4, 1),
            ("3?", 4, 0),
        ]
        elected = {"majority": "1", "prm": "2", "hmr": "1", "wrf": by_wrf, "weighted": "2"}
        for gold, own in told.items():
            assert own["elected"] == {vote: answer == gold for vote, answer in elected.items()}


@pytest.mark.parametrize(("rewards", "logistic"), [((0.0, 1.0), False), ((0.0, 1.5), True), ((-0.5, 1.0), True)])
def test_results_tell_whether_the_rewards_are_no_probabilities(tmp_path, equivalence, rewards, logistic):
    candidates = [{"text": "\\boxed{1}", "rm": reward} for reward in rewards]
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}]), "rm")
    bench.evaluate(questions, None, equivalence, tmp_path / "out", _quiet())
    assert json.loads((tmp_path / "out" / "results.json").read_text())["logistic"] is logistic


def test_solutions_are_written_once_with_their_steps(tmp_path):
    rows = [ROW | {"id": name} for name in "ab"]
    rows[1]["candidates"] = [{"text": "One.\n\nTwo: \\boxed{3}."}, {"text": " "}]
    questions = pool.load(_file(tmp_path / "c.jsonl", rows))
    bench.write_solutions(questions, tmp_path)
    path = tmp_path / "solutions.jsonl"
    whole = path.read_bytes()
    first, second = journal.read(path)
    assert (first["id"], first["problem"], first["gold"]) == ("a", ROW["question"], "3/4")
    assert [own["answer"] for own in first["solutions"]] == ["0.75", "\\frac{1}{6}", "\\frac34", None]
    assert second["solutions"] == [
        {"steps": ["One.", "Two: \\boxed{3}."], "answer": "3"},
        {"steps": [], "answer": None},
    ]
    path.write_bytes(whole[:-9])
    bench.write_solutions(questions, tmp_path)
    assert path.read_bytes() == whole
    with pytest.raises(OutputMismatch):
        bench.write_solutions(questions[:1], tmp_path)
    assert path.read_bytes() == whole


def test_solutions_are_read_as_the_settings_say_and_no_run_goes_on_otherwise(tmp_path, equivalence):
    candidates = [{"text": "Step 1: 1/2\n\nso it is 0.75.", "rm": 0.5}, {"text": "\\boxed{3/4}", "rm": 0.4}]
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW | {"id": "a", "candidates": candidates}]), "rm")
    reading = Reading("last_number", "step")
    (judged,) = bench.judge(questions, None, equivalence, tmp_path, _quiet(), reading)
    assert judged.correct == (True, True)
    with pytest.raises(OutputMismatch, match="extraction"):
        bench.judge(questions, None, equivalence, tmp_path, _quiet())
    bench.write_solutions(questions, tmp_path, reading)
    (told,) = journal.read(tmp_path / "solutions.jsonl")
    assert told["solutions"][0] == {"steps": [candidates[0]["text"]], "answer": "0.75"}
    with pytest.raises(OutputMismatch, match="split"):
        bench.write_solutions(questions, tmp_path, Reading("last_number"))


def test_the_command_keeps_how_solutions_are_read(tmp_path):
    path, output = _file(tmp_path / "c.jsonl", [ROW]), tmp_path / "out"
    options = ["--output", str(output), "--reward", "rm", "--extraction", "boxed", "--step-split", "line"]
    told = CliRunner().invoke(app, ["best-of-n", str(path), *options])
    assert told.exit_code == 0, told.output
    for name in ("candidates", "solutions"):
        config = json.loads((output / f"{name}.config.json").read_text("utf-8"))
        assert (config["extraction"], config["split"]) == ("boxed", "line")


def test_a_model_scores_the_steps_of_the_settings(tmp_path, equivalence):
    candidates = [{"text": "One.\n\nTwo.\nSo \\boxed{3/4}"}]
    questions = pool.load(_file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}]))
    bench.judge(questions, EngineScorer(FakeEngine()), equivalence, tmp_path, _quiet(), Reading(split="line"))
    (record,) = journal.read(tmp_path / "candidates.jsonl")
    assert len(record["scores"][0]) == 3


def test_accuracies_by_hand():
    # two of four candidates are right, in one class; the rewards prefer a wrong one
    judged = [Judged((0, 1, 0, 2), (True, False, True, False), (0.4, 0.9, 0.5, 0.1))] * 3
    results = bench.results(judged)
    assert list(results.any_right) == [1, 2, 4]
    assert results.accuracy["majority"][4].mean == 1
    assert results.accuracy["hmr"][4].mean == 1
    assert results.accuracy["prm"][4].mean == 0
    assert results.any_right[4].mean == 1


def test_draws_agree_with_all_subsets(monkeypatch):
    monkeypatch.setattr(bench, "DRAWS", 4000)
    judged = Judged((0, 1, 0, 2), (True, False, True, False), (0.4, 0.9, 0.5, 0.1))
    results = bench.results([judged])
    # the highest reward is candidate 1's, then 2's, 0's, 3's: right unless 1 is in
    pairs = list(itertools.combinations(range(4), 2))
    expected = sum(1 not in pair for pair in pairs) / len(pairs)
    assert results.accuracy["prm"][2].mean == pytest.approx(expected, abs=0.03)
    assert results.accuracy["prm"][1].mean == pytest.approx(0.5, abs=0.03)
    assert results.any_right[2].mean == pytest.approx(5 / 6, abs=0.03)


def test_no_answer_at_all_is_wrong():
    assert bench.results([Judged((None, None), (False, False), (0.5, 0.5))]).accuracy["wrf"][2].mean == 0


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (ROW | {"candidates": []}, "candidates"),
        (ROW | {"gold": ""}, "gold"),
        (ROW | {"candidates": [{"text": "a"}]}, "no number at 'rm'"),
        (ROW | {"candidates": [{"text": "a", "rm": True}]}, "no number at 'rm'"),
    ],
)
def test_bad_records_are_refused_by_line(tmp_path, row, complaint):
    with pytest.raises(RecordInvalid, match=f"(?s)2.*{complaint}"):
        pool.load(_file(tmp_path / "c.jsonl", [ROW, row]), "rm")


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(RecordInvalid, match="no question"):
        pool.load(_file(tmp_path / "c.jsonl", []))
