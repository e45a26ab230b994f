"""Best-of-N: judged candidates, draws, and votes against what can be counted by hand."""

import io
import itertools
import json

import pytest
from rich.console import Console

from training import best_of_n as bench
from training.best_of_n import Judged
from training.scorers import EngineScorer
from unprm.engines.fake import FakeEngine
from unprm.equivalence import Equivalence
from unprm.errors import RecordInvalid


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
    questions = bench.load(_file(tmp_path / "c.jsonl", [ROW]), "rm")
    (judged,) = bench.judge(questions, None, equivalence, tmp_path / "out", _quiet())
    assert judged.correct == (True, False, True, False)
    assert judged.classes[0] == judged.classes[2] != judged.classes[1]
    assert judged.classes[3] is None
    assert sorted(range(4), key=judged.rewards.__getitem__) == [1, 2, 0, 3]
    assert all(0 < reward < 1 for reward in judged.rewards)


def test_a_model_scores_them_and_a_second_run_asks_nothing(tmp_path, equivalence):
    questions = bench.load(_file(tmp_path / "c.jsonl", [ROW, ROW | {"id": 7}]))
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
    questions = bench.load(_file(tmp_path / "c.jsonl", [ROW | {"candidates": [{"text": text} for text in texts]}]))
    engine = FakeEngine()
    (judged,) = bench.judge(questions, EngineScorer(engine), equivalence, tmp_path / "out", _quiet())
    assert [len(batch) for batch in engine.batches] == [2]
    assert judged.rewards[0] == judged.rewards[2] != judged.rewards[1]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_judged_candidates_are_kept_by_the_questions_names(tmp_path, equivalence, names):
    """Else the draws of a question would depend on which was judged first."""
    texts = {"a": ["\\boxed{1}"], "b": ["\\boxed{1}", "\\boxed{2}"]}
    rows = [ROW | {"id": name, "candidates": [{"text": text} for text in texts[name]]} for name in names]
    questions = bench.load(_file(tmp_path / "c.jsonl", rows))
    judged = bench.judge(questions, EngineScorer(FakeEngine()), equivalence, tmp_path / "out", _quiet())
    assert [len(own.classes) for own in judged] == [1, 2]


def test_solutions_without_steps_or_over_the_window_are_worth_nothing(tmp_path, equivalence):
    row = ROW | {"candidates": [{"text": " "}, {"text": "\\boxed{1}" + "x" * 500}, {"text": "\\boxed{3/4}"}]}
    questions = bench.load(_file(tmp_path / "c.jsonl", [row]))
    scorer = EngineScorer(FakeEngine(max_tokens=200))
    (judged,) = bench.judge(questions, scorer, equivalence, tmp_path / "out", _quiet())
    assert judged.rewards[:2] == (0, 0)
    assert judged.rewards[2] > 0


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
        bench.load(_file(tmp_path / "c.jsonl", [ROW, row]), "rm")


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(RecordInvalid, match="no question"):
        bench.load(_file(tmp_path / "c.jsonl", []))
