"""Best-of-N: judged candidates, draws, and votes against what can be counted by hand."""

import io
import itertools
import json
import math

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.fake_engine import FakeEngine
from tests.support import TEST_DATA, columns
from tests.training import lines
from training.cli.evaluate import app
from training.evaluate import best_of_n, judging, pool
from training.evaluate.best_of_n import STUDIED
from training.evaluate.judging import JudgedCandidates
from training.evaluate.scorers import EngineScorer
from training.stage_settings import ReadingSettings
from unprm.errors import OutputMismatch, RecordInvalid
from unprm.votes.registry import REWARD_STRATEGIES, VoteTerms

DATA = TEST_DATA / "votes"


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


def test_candidates_are_judged_as_mathematics_and_given_rewards_keep_their_order(tmp_path):
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW]), "rm")
    (judged,) = judging.judge(questions, None, tmp_path / "out", _quiet())
    assert judged.correct == (True, False, True, False)
    assert judged.classes[0] == judged.classes[2] != judged.classes[1]
    assert judged.classes[3] is None
    assert sorted(range(4), key=judged.rewards.__getitem__) == [1, 2, 0, 3]
    assert all(0 < reward < 1 for reward in judged.rewards)


def test_a_model_scores_them_and_a_second_run_asks_nothing(tmp_path):
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW, ROW | {"id": 7}]))
    engine = FakeEngine()
    first = judging.judge(questions, EngineScorer(engine), tmp_path / "out", _quiet())
    calls = len(engine.batches)
    assert calls == 2
    assert judging.judge(questions, EngineScorer(engine), tmp_path / "out", _quiet()) == first
    assert len(engine.batches) == calls
    encoded = engine.format.encode(ROW["question"], ["It is \\boxed{0.75}."])
    assert first[0].rewards[0] == columns(engine.score([encoded])).values[0][0]


def test_equal_solutions_are_scored_once(tmp_path):
    texts = ["It is \\boxed{1}.", "It is \\boxed{2}.", "It is \\boxed{1}.", " "]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"candidates": [{"text": text} for text in texts]}]))
    engine = FakeEngine()
    (judged,) = judging.judge(questions, EngineScorer(engine), tmp_path / "out", _quiet())
    assert [len(batch) for batch in engine.batches] == [2]
    assert judged.rewards[0] == judged.rewards[2] != judged.rewards[1]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_judged_candidates_are_kept_by_the_questions_names(tmp_path, names):
    """Else the draws of a question would depend on which was judged first."""
    texts = {"a": ["\\boxed{1}"], "b": ["\\boxed{1}", "\\boxed{2}"]}
    rows = [ROW | {"id": name, "candidates": [{"text": text} for text in texts[name]]} for name in names]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", rows))
    judged = judging.judge(questions, EngineScorer(FakeEngine()), tmp_path / "out", _quiet())
    assert [len(candidates.classes) for candidates in judged] == [1, 2]


def test_solutions_without_steps_or_over_the_window_have_no_reward(tmp_path):
    row = ROW | {"candidates": [{"text": " "}, {"text": "\\boxed{1}" + "x" * 500}, {"text": "\\boxed{3/4}"}]}
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [row]))
    scorer = EngineScorer(FakeEngine(max_tokens=200))
    (judged,) = judging.judge(questions, scorer, tmp_path / "out", _quiet())
    assert judged.rewards[:2] == (None, None)
    assert judged.rewards[2] > 0


def test_a_vote_that_needs_rewards_of_which_there_is_none_is_not_right():
    judged = JudgedCandidates("q", (0, 1), (True, True), (None, None))
    assert not best_of_n.right_share("wrf", judged, [0, 1])
    assert best_of_n.right_share("majority", judged, [0, 1])
    assert best_of_n.right_share("wrf", judged, [1])  # unanimous
    sure = (None, None, 0.9)
    without_answer = JudgedCandidates("q", (0, 1, None), (True, True, False), (None, None, 0.9), None, sure)
    assert not best_of_n.right_share("wrf", without_answer, [0, 1, 2])
    assert not best_of_n.right_share("cisc", without_answer, [0, 1, 2])
    assert best_of_n.right_share("majority", without_answer, [0, 1, 2])


@pytest.mark.parametrize(
    ("strategy", "rewards", "share"),
    [
        ("majority", (None, None, None, None), 0.5),
        ("majority", (0.9, 0.9, 0.1, 0.1), 0.5),  # it never sees a reward
        ("prm", (0.9, 0.2, 0.9, 0.2), 0.5),  # nothing but the order is left
        ("prm", (0.9, 0.2, 0.9, 0.3), 0),  # the wrong class has the higher mean
        ("hmr", (0.2, 0.9, 0.2, 0.9), 0.5),
        ("wrf", (0.5, 0.5, 0.4, 0.6), 0.5),
        ("weighted", (0.5, 0.5, 0.4, 0.6), 0.5),
        ("weighted", (0.5, 0.5, 0.4, 0.5), 1),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (3, 0, 2, 1)])
def test_where_only_the_order_decides_a_tie_counts_by_its_share_of_right_answers(strategy, rewards, share, order):
    judged = JudgedCandidates("q", (0, 0, 1, 1), (True, True, False, False), rewards)
    assert best_of_n.right_share(strategy, judged, order) == share


def test_a_tie_that_frequency_breaks_is_right_or_not():
    judged = JudgedCandidates("q", (0, 1, 1, 1), (True, False, False, False), (0.9, 0.2, 0.2, 0.2))
    assert best_of_n.right_share("wrf", judged, range(4)) == 0  # α = 0.5: a half each
    assert best_of_n.right_share("prm", judged, range(4)) == 1
    three = JudgedCandidates("q", (0, 1, 2, None), (False, False, True, False), (0.5, 0.5, 0.5, 0.5))
    assert best_of_n.right_share("majority", three, range(4)) == pytest.approx(1 / 3)
    assert best_of_n.results([three]).accuracy["majority"][4].mean == pytest.approx(1 / 3)


def test_a_tie_of_all_votes_counts_by_its_share(tmp_path):
    candidates = [{"text": "\\boxed{1}", "rm": 0.5}, {"text": "\\boxed{2}", "rm": 0.5}]
    rows = [ROW | {"id": gold, "gold": gold, "candidates": candidates} for gold in "12"]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", rows), "rm")
    measured = best_of_n.evaluate(questions, None, tmp_path / "out", _quiet())
    assert {row.of_all.mean for row in measured.rows if row.vote != "any right"} == {0.5}


def test_step_scores_are_kept_where_there_are_any(tmp_path):
    texts = ["So 1 + 1 = 2.\n\nThe answer is \\boxed{2}.", " ", "\\boxed{1}" + "x" * 500]
    row = ROW | {"candidates": [{"text": text, "rm": 0.5} for text in texts]}
    path = _file(tmp_path / "c.jsonl", [row])
    engine = FakeEngine(max_tokens=200)
    questions = pool.read_pool(path)
    (judged,) = judging.judge(questions, EngineScorer(engine), tmp_path / "model", _quiet())
    (record,) = lines.read(tmp_path / "model" / "candidates.jsonl")
    assert record["scores"][1:] == [None, None]
    assert len(record["scores"][0]) == 2
    assert min(record["scores"][0]) == judged.rewards[0]
    judging.judge(pool.read_pool(path, "rm"), None, tmp_path / "given", _quiet())
    (given,) = lines.read(tmp_path / "given" / "candidates.jsonl")
    assert given["scores"] is None


def test_a_run_that_was_killed_goes_on(tmp_path):
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"id": "a"}, ROW | {"id": "b"}]))
    engine = FakeEngine()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = best_of_n.evaluate(questions, EngineScorer(engine), whole, _quiet())
    (whole / "candidates.config.json").rename(_made(killed) / "candidates.config.json")
    _file(killed / "candidates.jsonl", [lines.read(whole / "candidates.jsonl")[0]])
    calls = len(engine.batches)
    assert best_of_n.evaluate(questions, EngineScorer(engine), killed, _quiet()) == expected
    assert len(engine.batches) == calls + 1
    assert (killed / "candidates.jsonl").read_text() == (whole / "candidates.jsonl").read_text()
    assert (killed / "votes.md").read_text() == (whole / "votes.md").read_text()


def _made(place):
    place.mkdir()
    return place


def test_each_question_has_the_votes_that_are_right(tmp_path):
    texts = ["\\boxed{1}", "\\boxed{1}", "\\boxed{2}", "none"]
    rewards = [0.1, 0.2, 0.6, 0.9]
    candidates = [{"text": text, "rm": reward} for text, reward in zip(texts, rewards, strict=True)]
    rows = [{"id": gold, "problem": f"{gold}?", "gold": gold, "candidates": candidates} for gold in ("2", "1", "3")]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", rows), "rm")
    best_of_n.evaluate(questions, None, tmp_path / "out", _quiet())
    judged = {each.id: each for each in judging.kept(tmp_path / "out")}
    assert {gold: sum(each.correct) for gold, each in judged.items()} == {"1": 2, "2": 1, "3": 0}
    for alpha, by_wrf in ((0.0, "1"), (1.0, "2")):
        elected = {"majority": "1", "prm": "2", "hmr": "1", "wrf": by_wrf, "weighted": "2", "best_of_majority": "2"}
        for gold, each in judged.items():
            right = {vote: best_of_n.right_share(vote, each, range(4), VoteTerms(alpha=alpha)) for vote in elected}
            assert right == {vote: answer == gold for vote, answer in elected.items()}


def test_solutions_are_read_as_the_settings_say_and_no_run_goes_on_otherwise(tmp_path):
    candidates = [{"text": "Step 1: 1/2\n\nso it is 0.75.", "rm": 0.5}, {"text": "\\boxed{3/4}", "rm": 0.4}]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"id": "a", "candidates": candidates}]), "rm")
    reading = ReadingSettings("last_number", "step")
    (judged,) = judging.judge(questions, None, tmp_path, _quiet(), reading)
    assert judged.correct == (True, True)
    with pytest.raises(OutputMismatch, match="extraction"):
        judging.judge(questions, None, tmp_path, _quiet())


def test_the_command_keeps_how_solutions_are_read(tmp_path):
    path, output = _file(tmp_path / "c.jsonl", [ROW]), tmp_path / "out"
    options = ["--output", str(output), "--reward", "rm", "--extraction", "boxed", "--step-split", "line"]
    result = CliRunner().invoke(app, ["best-of-n", str(path), *options])
    assert result.exit_code == 0, result.output
    config = json.loads((output / "candidates.config.json").read_text("utf-8"))
    assert (config["extraction"], config["split"]) == ("boxed", "line")


def test_a_model_scores_the_steps_of_the_settings(tmp_path):
    candidates = [{"text": "One.\n\nTwo.\nSo \\boxed{3/4}"}]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}]))
    judging.judge(questions, EngineScorer(FakeEngine()), tmp_path, _quiet(), ReadingSettings(split="line"))
    (record,) = lines.read(tmp_path / "candidates.jsonl")
    assert len(record["scores"][0]) == 3


def test_accuracies_by_hand():
    # two of four candidates are right, in one class; the rewards prefer a wrong one
    judged = [JudgedCandidates("q", (0, 1, 0, 2), (True, False, True, False), (0.4, 0.9, 0.5, 0.1))] * 3
    results = best_of_n.results(judged)
    assert list(results.accuracy["any right"]) == [1, 2, 4]
    assert results.accuracy["majority"][4].mean == 1
    assert results.accuracy["hmr"][4].mean == 1
    assert results.accuracy["prm"][4].mean == 0
    assert results.accuracy["any right"][4].mean == 1


def test_draws_agree_with_all_subsets():
    """Of 8 candidates, of which there are 70 subsets of 4, more than are drawn for one of 200 questions."""
    rights, rewards = (True, False, True, False) * 2, (0.4, 0.9, 0.5, 0.1, 0.3, 0.2, 0.6, 0.7)
    results = best_of_n.results([JudgedCandidates("q", (0, 1, 0, 2) * 2, rights, rewards)] * 200)
    subsets = list(itertools.combinations(range(8), 4))
    elected = [rights[max(picks, key=rewards.__getitem__)] for picks in subsets]
    assert results.accuracy["prm"][4].mean == pytest.approx(sum(elected) / len(subsets), abs=0.03)
    assert results.accuracy["prm"][1].mean == 0.5
    any_right = sum(any(rights[k] for k in picks) for picks in subsets) / len(subsets)
    assert results.accuracy["any right"][4].mean == pytest.approx(any_right, abs=0.03)


def test_no_answer_at_all_is_wrong():
    assert (
        best_of_n.results([JudgedCandidates("q", (None, None), (False, False), (0.5, 0.5))]).accuracy["wrf"][2].mean
        == 0
    )


def _stepwise(scores):
    """A record whose first candidate was not scored."""
    steps = ["One.", "So \\boxed{3/4}."]
    return ROW | {"candidates": [{"steps": steps, "rm": []}, {"steps": steps, "rm": scores}]}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (ROW | {"candidates": []}, "candidates"),
        (ROW | {"gold": ""}, "gold"),
        (ROW | {"candidates": [{"text": "a"}]}, "candidate 0 has no number at 'rm', nor a list"),
        (ROW | {"candidates": [{"text": "a", "rm": True}]}, "no number at 'rm'"),
        (ROW | {"candidates": [{"text": "a", "rm": 10**400}]}, "no number at 'rm'"),
        (ROW | {"candidates": [{"rm": 1}]}, "neither `text` nor `steps`"),
        (ROW | {"candidates": [{"text": "a", "rm": 1}, {"text": "a", "rm": [1]}]}, "some candidates have a number"),
        (ROW | {"candidates": [{"text": "a", "rm": [1]}]}, "records before have numbers"),
        (_stepwise([0.5]), "candidate 1 at 'rm': 1 step scores for 2 steps"),
        *(
            (_stepwise([0.5, bad]), r"candidate 1 has no number .* step scores in \[0, 1\]")
            for bad in (1.5, -0.1, None, "1", True, float("nan"))
        ),
    ],
)
def test_bad_records_are_refused_by_line(tmp_path, row, complaint):
    with pytest.raises(RecordInvalid, match=f"(?s)2.*{complaint}"):
        pool.read_pool(_file(tmp_path / "c.jsonl", [ROW, row]), "rm")


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(RecordInvalid, match="no question"):
        pool.read_pool(_file(tmp_path / "c.jsonl", []))


def test_steps_and_their_scores_are_taken_as_they_were_given(tmp_path):
    output = tmp_path / "out"
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [_stepwise([0.75, 0.5])]), "rm")
    measured = best_of_n.evaluate(questions, None, output, _quiet())
    (judged,) = judging.kept(output)
    assert judged == JudgedCandidates("1", (0, 0), (True, True), (None, 0.5), ((), (0.75, 0.5)))
    rewards = {name: judged.rewarded(name).rewards[1] for name in best_of_n.AGGREGATES}
    assert rewards == {"min": 0.5, "last": 0.5, "product": 0.375, "mean": 0.625}
    assert measured.accuracy["prm"][2].mean == 1


def test_a_model_scores_steps_as_they_were_given(tmp_path):
    candidates = [{"steps": ["One.\n\nStill one.", "So \\boxed{3/4}."]}]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}]))
    (judged,) = judging.judge(questions, EngineScorer(FakeEngine()), tmp_path, _quiet())
    assert len(judged.scores[0]) == 2


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The command on 12 problems with real step scores: what it says, and where it wrote."""
    output = tmp_path_factory.mktemp("recorded")
    pool_file = str(DATA / "math500_pool_rlhflow.jsonl")
    result = CliRunner().invoke(app, ["best-of-n", pool_file, "--reward", "step_scores", "--output", str(output)])
    assert result.exit_code == 0, result.output
    return result.output, output


def test_votes_on_real_step_scores(recorded):
    """Twelfths: what a program written apart from this one found over all candidates, ties by share, and one question
    more for all votes but `prm`: candidates whose weak readings count, which that program does not read."""
    output = recorded[1]
    results = json.loads((output / "results.json").read_text("utf-8"))
    assert (results["questions"], results["candidates"], results["most_candidates"]) == (12, 6, 26)
    assert results["normalization"] == "minmax"
    twelfths = {}
    for row in results["rows"]:
        if row["vote"] in STUDIED:
            twelfths.setdefault(row["reward"], {})[row["vote"]] = 12 * row["of_all"]["mean"]
    assert twelfths == {
        "–": pytest.approx({"majority": 6.7 + 1 / 6}),
        "min": pytest.approx({"prm": 6, "hmr": 7 + 1, "wrf": 8 + 1, "weighted": 8 + 1}),
        "last": pytest.approx({"prm": 8, "hmr": 7 + 1, "wrf": 8 + 1, "weighted": 8 + 1}),
        "product": pytest.approx({"prm": 9, "hmr": 8 + 1, "wrf": 8 + 1, "weighted": 8 + 1}),
        "mean": pytest.approx({"prm": 6, "hmr": 7 + 1, "wrf": 7 + 1, "weighted": 7 + 1}),
    }
    assert list(results["any_right"]) == ["1", "2", "4"]
    # mean@1 is the mean share of right candidates, whatever the draws
    mean = sum(sum(candidates.correct) / len(candidates.correct) for candidates in judging.kept(output)) / 12
    assert [accuracy["1"]["mean"] for accuracy in results["accuracy"].values()] == [pytest.approx(mean)] * len(
        REWARD_STRATEGIES
    )


def test_one_table_has_every_vote_with_every_reward(recorded):
    written = (recorded[1] / "votes.md").read_text("utf-8")
    title, header, rule, *rows = [line for line in written.splitlines() if line]
    assert title.startswith("Right answers in % (95 % interval), 12 questions with 6 to 26 candidates each; ")
    assert header == "| vote | reward | N = 1 (mean@1) | N = 2 | N = 4 | all 6 to 26 | against majority, points |"
    assert rule == "| --- | --- | --: | --: | --: | --: | --: |"
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    rewarded = [(vote, reward) for vote in REWARD_STRATEGIES[1:] for reward in best_of_n.AGGREGATES]
    assert [(vote, reward) for vote, reward, *_ in cells] == [("majority", "–"), *rewarded, ("any right", "–")]
    assert cells[0][-2].startswith("57.2 (")
    assert cells[-1][-2] == "100.0 (75.8–100.0)"  # 12 / (12 + 1.96²)
    assert all(vote in recorded[0] for vote in ("any right", "product"))


def test_rewards_that_are_one_number_have_one_row_a_vote(tmp_path):
    questions = pool.read_pool(DATA / "qwen_math_cot_rm.jsonl", "rm_score")
    measured = best_of_n.evaluate(questions, None, tmp_path, _quiet())
    assert {row.reward for row in measured.rows} == {"–", "given"}
    lines = (tmp_path / "votes.md").read_text("utf-8").splitlines()
    # every question has 8 candidates: the largest N is all of them
    assert lines[2] == "| vote | reward | N = 1 (mean@1) | N = 2 | N = 4 | N = 8 | against majority, points |"
    assert [line.split(" | ")[1] for line in lines[4:]] == ["–", *["given"] * (len(REWARD_STRATEGIES) - 1), "–"]
    rows = [json.loads(line) for line in (DATA / "qwen_math_cot_rm.jsonl").read_text("utf-8").splitlines()]
    shares = [sum(candidate["correct"] for candidate in row["candidates"]) / 8 for row in rows]
    assert measured.accuracy["majority"][1].mean == pytest.approx(sum(shares) / 6)


def test_votes_are_held_against_majority_on_the_same_questions():
    misled = JudgedCandidates(
        "q", (0, 0, 1), (False, False, True), (0.1, 0.1, 0.9)
    )  # the reward is right, majority is not
    easy = JudgedCandidates("q", (0, 0, 1), (True, True, False), (0.9, 0.9, 0.1))
    measured = best_of_n.results([misled] * 20 + [easy] * 20)
    by_vote = {row.vote: row for row in measured.rows}
    prm, hmr = by_vote["prm"], by_vote["hmr"]
    assert prm.against_majority.mean == 0.5
    assert 0 < prm.against_majority.low < 0.5 < prm.against_majority.high
    assert prm.p < 0.01
    assert (hmr.against_majority.low, hmr.against_majority.high) == (0, 0)  # two of three are a majority
    assert hmr.p == 1
    assert by_vote["majority"].against_majority is None
    rows = [line.split(" | ") for line in best_of_n.markdown(measured).splitlines()]
    assert [row[-1] for row in rows if row[0] == "| hmr"] == ["+0.0 [+0.0, +0.0], p = 1.000 |"]


def _sure(text, sure):
    """A candidate whose one token has the probability that `sure` is the logarithm of."""
    return {"text": text, "rm": 0.5, "token_logprobs": [sure]}


def test_votes_by_confidence_are_judged_where_every_question_has_confidences(tmp_path):
    texts = ["\\boxed{3/4}", "\\boxed{1}", "\\boxed{1}"]
    candidates = [_sure(text, sure) for text, sure in zip(texts, (-0.1, -2.0, -2.0), strict=True)]
    path = _file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}])
    measured = best_of_n.evaluate(pool.read_pool(path, "rm"), None, tmp_path / "out", _quiet())
    (judged,) = judging.kept(tmp_path / "out")
    assert judged.confidences == pytest.approx((math.exp(-0.1), math.exp(-2), math.exp(-2)))
    right = {row.vote: row.of_all.mean for row in measured.rows}
    # softmax at 0.5 of 0.905 against two of 0.135: 6.11 against 2.62
    assert (right["majority"], right["cisc"]) == (0, 1)
    (cisc,) = (row for row in measured.rows if row.vote == "cisc")
    assert cisc.against_majority.mean == 1
    assert "| cisc | – | " in best_of_n.markdown(measured)
    for more, takeable in (({"logprobs": [-0.1]}, (*REWARD_STRATEGIES, "cisc")), ({"logprobs": []}, REWARD_STRATEGIES)):
        other = ROW | {"id": "b", "candidates": [{"text": texts[0], "rm": 0.5, **more}]}
        path = _file(tmp_path / "d.jsonl", [ROW | {"candidates": candidates}, other])
        judged = judging.judge(pool.read_pool(path, "rm"), None, _made(tmp_path / str(more)), _quiet())
        assert best_of_n.takeable(judged) == takeable


def test_a_candidate_that_says_how_sure_it_is_is_believed_and_one_that_does_not_has_no_weight(tmp_path):
    texts = {"\\boxed{3/4}": 3.0, "\\boxed{1}": 1.0, "\\boxed{1}.": None}
    candidates = [{"text": text, "rm": 0.5, "confidence": sure} for text, sure in texts.items()]
    questions = pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"candidates": candidates}]), "rm")
    (judged,) = judging.judge(questions, None, tmp_path / "out", _quiet())
    assert judged.confidences == (3.0, 1.0, None)
    assert best_of_n.right_share("cisc", judged, range(3)) == 1
    assert best_of_n.right_share("cisc", judged, [2]) == 0  # alone, and wrong
    assert best_of_n.right_share("cisc", judged, [0, 2]) == 1
    nobody = JudgedCandidates("q", (0, 1), (True, True), (0.5, 0.5), confidences=(None, None))
    assert best_of_n.right_share("cisc", nobody, [0, 1]) == 0


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("confidence", -0.5, "confidence"),
        ("token_logprobs", [0.5], "token_logprobs"),
    ],
)
def test_bad_confidences_are_refused_by_line(tmp_path, field, value, complaint):
    with pytest.raises(RecordInvalid, match=f"(?s)1.*{complaint}"):
        pool.read_pool(_file(tmp_path / "c.jsonl", [ROW | {"candidates": [{"text": "a", field: value}]}]))
