"""Elected answers are accepted at the risk that a request allows, by the calibration that is served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.calibrations import LOWEST, calibration
from tests.server.harness import PROBLEM, Running, ask, serving
from unprm.votes.registry import VOTES

STRATEGIES = [name for name, vote in VOTES.items() if vote.signal in ("none", "reward")]


def candidate(answer: int, score: float = 0.9, **more: Any) -> dict[str, Any]:
    return {"steps": ["It is."], "answer": str(answer), "step_scores": [score], **more}


SURE = [candidate(1), candidate(1), candidate(1, 0.8), candidate(2, 0.1)]
UNSURE = [candidate(1, 0.4), candidate(2, 0.35), candidate(3, 0.3)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(vote_calibration=calibration(tmp_path_factory.mktemp("calibrated"))) as server:
        yield server


@pytest.mark.parametrize("path", ["", *(f"/{strategy}" for strategy in STRATEGIES)])
def test_a_vote_says_whether_its_answer_is_accepted(running: Running, path: str) -> None:
    sure, unsure = (running.post(f"/vote{path}", ask(*each, risk=0.05)).json() for each in (SURE, UNSURE))
    assert (sure["accept"], unsure["accept"]) == (True, False)
    applied = sure["calibration"]
    assert applied.pop("certainty") >= LOWEST > unsure["calibration"]["certainty"]
    assert applied == {
        "pool": "a pool",
        "problems": 100,
        "date": "2026-01-31",
        "confidence": 0.9,
        "model": "fake",
        "strategy": sure["strategy"],
        "risk": 0.05,
        "threshold": LOWEST,
        "within": True,
        "outside": [],
    }


def test_without_a_risk_nothing_is_said(running: Running) -> None:
    answer = running.post("/vote/wrf", ask(*SURE)).json()
    assert answer.keys().isdisjoint({"accept", "calibration"})


def test_a_risk_that_the_pool_cannot_support_accepts_nothing(running: Running) -> None:
    answer = running.post("/vote/wrf", ask(*SURE, risk=0.001)).json()
    assert (answer["accept"], answer["calibration"]["threshold"]) == (False, None)


def test_rewards_count_where_the_vote_needs_them(running: Running) -> None:
    """Whether they were sent or not: where they don't decide, the server has none."""
    agreed = [candidate(1, 0.2)] * 3
    answer = running.post("/vote/wrf", ask(*agreed, risk=0.05)).json()
    assert (answer["accept"], answer["calibration"]["certainty"]) == (True, 1.0)


@pytest.mark.parametrize(
    ("solutions", "outside"),
    [
        ([candidate(1)], ["candidates"]),
        ([candidate(1)] * 9, ["candidates"]),
        ([candidate(1, 0.01), candidate(2, 0.001)], ["highest_reward"]),
        ([candidate(1), *(candidate(k, 0.001) for k in range(2, 8))], ["share"]),
    ],
)
def test_candidates_unlike_the_pool_s_are_not_accepted(
    running: Running, solutions: list[Any], outside: list[str]
) -> None:
    answer = running.post("/vote/prm", ask(*solutions, risk=0.05)).json()
    assert (answer["accept"], answer["calibration"]["within"]) == (False, False)
    assert answer["calibration"]["outside"] == outside


def test_compared_votes_are_judged_each_by_its_own(running: Running) -> None:
    body = ask(*SURE, risk=0.05, alpha=0.7)  # other settings of wrf than it was calibrated with
    answer = running.post("/vote/compare", body).json()["strategies"]
    judged = {strategy: outcome.get("accept") for strategy, outcome in answer.items()}
    assert judged == {strategy: None if strategy == "wrf" else True for strategy in STRATEGIES}


@pytest.mark.parametrize(
    ("changes", "path", "body", "detail"),
    [
        ({}, "wrf", {"alpha": 0.7}, "is of alpha 0.5, and the vote has 0.7"),
        ({}, "wrf", {"aggregate": "mean"}, "is of aggregate min, and the vote has mean"),
        ({"elections": {"majority": []}}, "wrf", {}, "is of majority, and the vote is wrf"),
        (
            {"elections": {"wrf": [(0.9, False), (0.3, True)] * 30}},
            "wrf",
            {},
            "can't be relied on for wrf: its answers of lower certainty are more often right (100 % of 30, against 0 % "
            "of 30 above them)",
        ),
        ({"model": "other"}, "wrf", {"solutions": ["\\boxed{1}"]}, "is of model other, and the vote has fake"),
        ({"model": None}, "wrf", {"solutions": ["\\boxed{1}"]}, "is of model given rewards, and the vote has fake"),
    ],
)
def test_a_calibration_of_another_vote_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], path: str, body: dict[str, Any], detail: str
) -> None:
    with serving(vote_calibration=calibration(tmp_path, **changes)) as running:
        answer = running.post(f"/vote/{path}", ask(*SURE, risk=0.05) | body)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/risk", "detail": f"the calibration {detail}"}]


def test_a_vote_without_rewards_needs_no_calibration_of_the_model(tmp_path: Path) -> None:
    with serving(vote_calibration=calibration(tmp_path, model="other")) as running:
        solutions = ["\\boxed{1}"] * 3
        assert running.post("/vote/majority", {"solutions": solutions, "risk": 0.05}).json()["accept"] is True


def test_without_a_calibration_a_risk_names_the_command(server: Running) -> None:
    answer = server.post("/vote/wrf", ask(*SURE, risk=0.05))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/risk"
    assert "unprm evaluate calibrate-votes" in answer.json()["detail"]
    assert server.get("/model").json()["vote_calibration"] is None


@pytest.mark.parametrize("risk", [0, 1, -0.1, "a"])
def test_a_risk_is_a_share(server: Running, risk: Any) -> None:
    answer = server.post("/vote/majority", {"problem": PROBLEM, "solutions": ["\\boxed{1}"], "risk": risk})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/risk")


def test_the_model_s_description_names_the_calibration(running: Running) -> None:
    described = running.get("/model").json()["vote_calibration"]
    assert (described["pool"], described["problems"], described["model"]) == ("a pool", 100, "fake")
