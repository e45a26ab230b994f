"""Grades over HTTP: each pair by itself, and hostile ones at a bounded cost."""

from typing import Any

from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving
from tests.unprm.answers.support import NASTY, SLOW
from unprm.wire import MAX_PAIRS


def grades(server: Running, *pairs: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    response = server.post("/grade", {"pairs": pairs, **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["grades"]
    return found


def verdicts(server: Running, *pairs: dict[str, Any], **more: Any) -> list[bool]:
    return [each["correct"] for each in grades(server, *pairs, **more)]


def test_answers_and_texts_are_graded_by_their_own_gold(server: Running) -> None:
    pairs = [
        {"id": "a", "answer": "0.5", "gold": r"\frac{1}{2}"},
        {"text": r"4 * 15 = 60.\n\nThe answer is \boxed{83}.", "gold": ["84", "83.0"]},
        {"answer": "London", "gold": ["Paris", "Rome"]},
        {"text": "I can't tell.", "gold": "83"},
        {"answer": None, "gold": "83"},
        {"answer": " ", "gold": "83"},
    ]
    assert grades(server, *pairs) == [
        {"id": "a", "correct": True, "answer": "0.5", "compared_as_text": False},
        {"id": None, "correct": True, "answer": "83", "compared_as_text": False},
        {"id": None, "correct": False, "answer": "London", "compared_as_text": False},
        *[{"id": None, "correct": False, "answer": None, "compared_as_text": False}] * 3,
    ]


def test_a_text_that_states_no_answer_is_right_if_it_ends_in_the_right_one(server: Running) -> None:
    pairs = [{"text": "So she walks 5 miles.", "gold": gold} for gold in ("5", "6")]
    right, wrong = grades(server, *pairs)
    assert right == {"id": None, "correct": True, "answer": "5", "compared_as_text": False, "weak": True}
    assert wrong == {"id": None, "correct": False, "answer": None, "compared_as_text": False}
    assert verdicts(server, pairs[0], extraction="stated") == [False]
    scored = server.post("/score_steps", {"problem": "How far?", "solutions": ["So she walks 5 miles."], "gold": "5"})
    (solution,) = scored.json()["solutions"]
    assert (solution["correct"], solution["answer"], solution["read"]) == (True, "5", "weak")


def test_a_weak_reading_leaves_out_what_the_problem_gives(server: Running) -> None:
    pair = {"text": "So she walks 5 miles in 2 hours.", "gold": "5"}
    asked = {"problem": "She walks 2.5 miles an hour for 2 hours. How far?"}
    without, given = server.post("/grade", {"pairs": [pair, pair | asked]}).json()["grades"]
    assert (without["answer"], without["correct"]) == (None, False)
    assert (given["answer"], given["correct"], given["weak"]) == ("5", True, True)
    other = {"problems": ["Who?", asked["problem"]], "golds": ["5", "5"], "solutions": [{"text": pair["text"]}] * 2}
    scored = server.post("/score_steps", other).json()["solutions"]
    assert [each["correct"] for each in scored] == [False, True]


def test_no_pair_is_graded_by_another(server: Running) -> None:
    """In a vote 5 joins one of the two units alone."""
    assert verdicts(server, {"answer": "5", "gold": "5 cm"}, {"answer": "5", "gold": "5 kg"}) == [True, True]
    assert verdicts(server, {"answer": "5 cm", "gold": ["5", "5 kg"]}, {"answer": "5 cm", "gold": "5 kg"}) == [
        True,
        False,
    ]


def test_the_extraction_of_the_request_applies(server: Running) -> None:
    pair = {"text": "It was (B), but (C) is correct.", "gold": "C"}
    assert verdicts(server, pair, extraction="choice") == [True]
    assert verdicts(server, pair, extraction="boxed") == [False]


def test_thousands_are_graded_in_a_request_and_hostile_ones_among_them_cost_the_others_nothing(server: Running) -> None:
    hostile = [{"answer": text, "gold": [f"{SLOW}+1", "7"]} for text in [*NASTY, SLOW]]
    hostile += [{"text": f"The answer is \\boxed{{{text}}}", "gold": text} for text in NASTY]
    honest = [
        {"id": "honest", "answer": f"{k % 99}/2", "gold": str(k % 99 / 2)} for k in range(MAX_PAIRS - len(hostile))
    ]
    found = grades(server, *honest[:2000], *hostile, *honest[2000:])
    assert len(found) == MAX_PAIRS
    assert [each["correct"] for each in found if each["id"] == "honest"] == [True] * len(honest)


def test_what_cannot_be_compared_in_time_is_compared_as_text() -> None:
    with serving(FakeEngine(), equivalence_deadline=1e-9) as running:
        late = grades(running, {"answer": "2x+y", "gold": "y+2x"}, {"answer": "2x+y", "gold": ["7", "2x+y"]})
    assert [(each["correct"], each["compared_as_text"]) for each in late] == [(False, True), (True, True)]


def test_no_model_is_needed() -> None:
    with serving({}) as running:
        assert running.get("/readyz").status_code == 200
        assert verdicts(running, {"answer": "1", "gold": "1"}) == [True]


def test_what_is_no_pair_is_refused_by_name(server: Running) -> None:
    for pairs, pointer in (
        ([], "/pairs"),
        ([{"answer": "1", "gold": "1"}] * (MAX_PAIRS + 1), "/pairs"),
        ([{"answer": "1"}], "/pairs/0/gold"),
        ([{"answer": "1", "gold": []}], "/pairs/0/gold"),
        ([{"answer": "1", "gold": ["1"] * 17}], "/pairs/0/gold"),
        ([{"answer": "1", "gold": ["1", " "]}], "/pairs/0/gold/1"),
        ([{"answer": "1", "gold": 1}], "/pairs/0/gold"),
        ([{"answer": "1", "text": "1", "gold": "1"}], "/pairs/0"),
    ):
        refused = server.post("/grade", {"pairs": pairs})
        assert refused.status_code == 422
        assert [error["pointer"] for error in refused.json()["errors"]] == [pointer], refused.text
