"""Scores beside a right answer: whether each candidate's is right, and the reward that comes of both."""

from statistics import fmean
from typing import Any

import pytest

from tests.server.harness import Running, ask, boxed

CANDIDATES: list[Any] = [boxed("1/2", "a", "b"), boxed(3, "c"), "no answer", {"steps": ["d"], "answer": "0.50"}]


def test_without_gold_nothing_is_said_of_outcomes(server: Running) -> None:
    scored = server.post("/score_steps", ask(*CANDIDATES)).json()
    assert "combination" not in scored
    assert not {"correct", "compared_as_text", "combined_reward"} & {
        name for each in scored["solutions"] for name in each
    }


@pytest.mark.parametrize("combination", [None, "outcome", "process", "outcome_min", "outcome_mean"])
def test_rewards_combine_what_is_right_with_the_step_scores(server: Running, combination: str | None) -> None:
    sent = ask(*CANDIDATES, aggregate="mean")
    plain = server.post("/score_steps", sent).json()["solutions"]
    more = {} if combination is None else {"combination": combination}
    response = server.post("/score_steps", sent | {"gold": ["7", r"\frac12"]} | more).json()
    assert response["combination"] == (combination or "outcome")
    found = [[each.pop(name, None) for name in ("correct", "compared_as_text", "combined_reward")]
             for each in response["solutions"]]  # fmt: skip
    assert response["solutions"] == plain
    made = {
        None: lambda right, scores: float(right),
        "outcome": lambda right, scores: float(right),
        "process": lambda right, scores: fmean(scores),
        "outcome_min": lambda right, scores: right * min(scores),
        "outcome_mean": lambda right, scores: right + 0.5 * fmean(scores),
    }[combination]
    for each, (correct, as_text, reward), right in zip(plain, found, [True, False, False, True], strict=True):
        assert correct is right
        assert as_text is False
        assert reward == pytest.approx(made(right, each["step_scores"]))


def test_an_answer_is_right_or_not_where_steps_cannot_be_scored(server: Running) -> None:
    """A solution beyond the model's window: its outcome is known, and counts; what is of step scores alone is not."""
    long = boxed(7, "x" * 3000)
    for combination, reward in (("outcome", 1.0), ("outcome_min", 1.0), ("outcome_mean", 1.0), ("process", None)):
        (scored,) = server.post("/score_steps", ask(long, gold="7", combination=combination)).json()["solutions"]
        assert scored["unscored"]["code"] == "solution_too_long"
        assert (scored["correct"], scored.get("combined_reward")) == (True, reward)
    assert server.post("/score_steps", ask(long, gold="7", on_invalid="refuse")).status_code == 422


def test_a_combination_needs_a_right_answer(server: Running) -> None:
    for more in ({"combination": "outcome"}, {"mean_weight": 0.1}):
        refused = server.post("/score_steps", ask("a", **more))
        assert refused.json()["errors"][0]["pointer"] == f"/{next(iter(more))}"
    assert server.post("/vote/prm", ask("a", gold="1")).status_code == 422
