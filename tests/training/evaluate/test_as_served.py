"""Best-of-N and the calibration of votes elect what the server elects among the same candidates."""

import io
import json

import pytest
from rich.console import Console

from tests.fake_engine import FakeEngine
from tests.server.harness import serving
from training.evaluate import acceptance, best_of_n, judging, pool
from training.evaluate.best_of_n import right_share
from unprm.election.decide import decide

CALL = '{{"name": "convert", "arguments": {{"to": "{}", "amount": {}}}}}'
POOLS = {
    "stated": ("3/4", ["It is \\boxed{0.75}.", "\\boxed{\\frac34}", "\\boxed{1/6}", "I can't tell."]),
    "a last sentence": (
        "150",
        [
            "He walks for two hours.\n\nTherefore he travels 150 miles.",
            "60 + 90 = 150",
            "He is slow.\n\nTherefore he travels 90 miles.",
            "Total: 150",
            "I can't tell how far he goes in that time, nor could anybody who was not there.",
        ],
    ),
    "a short text": ("spam", ["Label: spam", "Label: ham", "Label: Spam.", "Label: ham", "Label: spam"]),
    "JSON": ('{"a": 2, "b": [1]}', ['{"b": [1], "a": 2.0}', '{"a": 3}', '```json\n{"a": 2, "b": [1]}\n```', "no"]),
    "a tool call": (
        CALL.format("EUR", 5),
        [CALL.format("EUR", 5), CALL.format("USD", 5), CALL.format("EUR", "5.0"), CALL.format("EUR", 7)],
    ),
    "units": ("90 minutes", ["Answer: 90", "Answer: 1.5 hours", "Answer: 80 minutes", "Answer: 90 minutes"]),
}


@pytest.fixture(scope="module")
def running():
    with serving(FakeEngine()) as running:
        yield running


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("strategy", ["majority", "prm", "wrf", "weighted"])
def test_an_election_is_that_of_the_server(running, tmp_path, kind, strategy):
    gold, texts = POOLS[kind]
    scores = [[0.9 - 0.1 * k] for k in range(len(texts))]
    candidates = [{"steps": [text], "s": score} for text, score in zip(texts, scores, strict=True)]
    path = tmp_path / "pool.jsonl"
    rows = [{"id": name, "problem": "How many?", "answer": gold, "candidates": candidates} for name in "ab"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    solutions = [{"steps": [text], "step_scores": score} for text, score in zip(texts, scores, strict=True)]
    served = running.post(f"/vote/{strategy}", {"problem": "How many?", "solutions": solutions}).json()

    measured = best_of_n.evaluate(pool.read_pool(path, "s"), None, tmp_path / "run", Console(file=io.StringIO()))
    judged = judging.read_judged(tmp_path / "run")[0]
    elected = decide(strategy, judged.classes, judged.rewards)
    assert elected.solution_index == served["solution_index"]
    members = [each["members"] for each in served["candidates"]]
    assert [list(each.members) for each in elected.candidates] == members
    right = judged.correct[served["solution_index"]]
    assert right is (0 in served["candidates"][0]["members"])  # the first candidate has the right answer
    assert right_share(strategy, judged, range(len(texts))) == right
    (row,) = (row for row in measured.rows if (row.vote, row.reward) in ((strategy, "min"), (strategy, "–")))
    assert row.of_all.mean == right

    # a server judges the risk of stated answers alone
    assert judged.stated is (served.get("compared_as", "stated") == "stated")
    if judged.stated:
        calibration = acceptance.calibrated(tmp_path / "run", "2026-01-31")
        assert [correct for _, correct in calibration.elections[strategy]] == [right, right]
