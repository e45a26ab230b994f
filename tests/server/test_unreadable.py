"""A reader that fails on one candidate fails that candidate alone."""

import logging

import pytest

from tests.fakes import upstream
from tests.server.gateway.harness import elected, gateway
from tests.server.harness import PROBLEM, serving
from unprm.answers import extraction

SECRET = "So we have the final answer"
BOXED = "Step 1: 60 + 8 = 68. \\boxed{68}"


@pytest.fixture(params=["as it is", "failing"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader of answers, or one that fails on `SECRET`."""

    def read(text: str) -> str | None:
        return {}[text] if text == SECRET else extraction._auto(text)

    if request.param == "failing":
        monkeypatch.setitem(extraction._READS, "auto", (read,))
    name: str = request.param
    return name


def test_a_vote_goes_on_without_the_answer(reader: str, caplog: pytest.LogCaptureFixture) -> None:
    body = {"problem": PROBLEM, "solutions": [BOXED, BOXED, SECRET]}
    pairs = [{"text": text, "gold": "68"} for text in (BOXED, SECRET)]
    with serving() as running, caplog.at_level(logging.ERROR):
        before = running.metric("unprm_unreadable_texts_total")
        voted = running.post("/vote/prm", body).json()
        scored = running.post("/score_steps", body).json()
        graded = running.post("/grade", {"pairs": pairs}).json()
        failures = running.metric("unprm_unreadable_texts_total") - before
    assert [each["answer"] for each in voted["solutions"]] == ["68", "68", None]
    assert voted["answer"] == "68"
    assert [each["answer"] for each in scored["solutions"]] == ["68", "68", None]
    assert [each["correct"] for each in graded["grades"]] == [True, False]
    assert all(each["step_scores"] for each in scored["solutions"])
    assert (failures >= 3) == ("could not be read" in caplog.text) == (reader == "failing")
    assert SECRET not in caplog.text


def test_a_chat_goes_on_without_the_answer(reader: str) -> None:
    with upstream(BOXED, BOXED, SECRET) as sampled, gateway(sampled) as running:
        answer, report = elected(running, budget=3, strategy="majority", stable=1, round=3)
    assert answer.choices[0].message.content == BOXED
    assert (report["answer"], report["without_answer_count"]) == ("68", 1)
