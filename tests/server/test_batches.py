"""Solutions of several problems in one request."""

from typing import Any

import pytest

from tests.fake_engine import FakeEngine
from tests.server.harness import PROBLEM, Running, ask, boxed, serving

INSIDE = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
PROBLEMS = [PROBLEM, "What is 3 + 4?", PROBLEM, "What is 3 + 4?"]
SOLUTIONS: list[Any] = [boxed(1, "a"), "b\n\nThe answer is 7.", boxed(2, "c"), " "]


def test_a_batch_scores_as_a_request_for_each(server: Running) -> None:
    each = [{"problem": problem, "solutions": [s]} for problem, s in zip(PROBLEMS, SOLUTIONS, strict=True)][:3]
    alone = [server.post("/score_steps", one).json()["solutions"][0] for one in each]
    found = server.post("/score_steps", {"problems": PROBLEMS, "solutions": SOLUTIONS}).json()["solutions"]
    assert found[:3] == alone
    assert found[3]["unscored"]["code"] == "blank"
    assert len({str(one["step_scores"]) for one in alone}) == 3


def test_each_answer_is_judged_by_its_own_right_answers(server: Running) -> None:
    sent = {"problems": PROBLEMS, "solutions": SOLUTIONS, "golds": ["1", ["7", "8"], "1", "7"]}
    response = server.post("/score_steps", sent | {"combination": "outcome"}).json()
    assert [each["correct"] for each in response["solutions"]] == [True, True, False, False]


def test_a_problem_longer_than_the_window_leaves_those_of_others() -> None:
    long = "x" * 300
    with serving(FakeEngine(max_tokens=200)) as running:
        sent = {"problems": [long, PROBLEM, long], "solutions": [["a"], ["b"], ["c"]]}
        found = running.post("/score_steps", sent).json()["solutions"]
    assert [each["unscored"] and each["unscored"]["code"] for each in found] == [
        "solution_too_long",
        None,
        "solution_too_long",
    ]


STEPS = ["Step 1: 23 + 45 = 68."]


def test_a_demonstration_tells_of_any_problem_outside_its_domain() -> None:
    with serving(FakeEngine(demo=True)) as running:
        several = [[INSIDE, INSIDE], [INSIDE, PROBLEM], [INSIDE, INSIDE.replace("45", "46")]]
        told = [
            running.post("/score_steps", {"problems": problems, "solutions": [STEPS, STEPS]}).json()["demonstration"]
            for problems in several
        ]
    assert [each["in_domain"] for each in told] == [True, False, True]


@pytest.mark.parametrize(
    ("sent", "pointer", "detail"),
    [
        ({"problems": PROBLEMS[:1]}, "/problems", "1 problems were sent for 2 solutions"),
        ({"problems": PROBLEMS[:2], "golds": ["1"]}, "/golds", "1 golds were sent for 2 solutions"),
        ({"problems": PROBLEMS[:2], "gold": "1"}, "/gold", "/gold can't be given with /problems"),
        ({"problems": PROBLEMS[:2], "problem": "p"}, "/problem", "/problem can't be given with /problems"),
        ({"problem": "p", "golds": ["1", "2"]}, "/golds", "golds is of no effect without /problems"),
        ({"problems": ["p", " "]}, "/problems/1", "must not be blank"),
        ({"problems": []}, "/problems", "must not be empty"),
    ],
)
def test_what_does_not_fit_is_refused(server: Running, sent: dict[str, Any], pointer: str, detail: str) -> None:
    refused = server.post("/score_steps", {"solutions": [["a"], ["b"]]} | sent)
    assert refused.status_code == 422
    assert refused.json()["errors"] == [{"pointer": pointer, "detail": detail}]


def test_trajectories_and_votes_are_about_one_problem(server: Running) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    sent = {"problems": ["p"], "trajectories": [{"messages": messages}]}
    assert server.post("/score_steps", sent).json()["errors"][0]["pointer"] == "/trajectories"
    for path in ("/vote", "/vote/prm", "/vote/majority", "/vote/compare"):
        refused = server.post(path, ask(["a"], problems=[PROBLEM]))
        assert refused.status_code == 422
        assert "a vote is about one problem" in refused.text
