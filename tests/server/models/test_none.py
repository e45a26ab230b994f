"""A server without a model: votes are by answers alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from server.settings import Settings, SettingsInvalid
from tests.fakes import upstream
from tests.server.gateway.harness import boxed, elected
from tests.server.harness import PROBLEM, Running, ask, serving
from tests.support import MODELS, imported

SOLUTIONS = [boxed(1), boxed(2), boxed(2)]
RATED = [{"text": boxed(number), "step_scores": [score]} for number, score in ((1, 0.9), (2, 0.1), (2, 0.2))]


@pytest.fixture(scope="module")
def none() -> Iterator[Running]:
    with serving({}, model=["none"]) as running:
        yield running


def test_answers_alone_decide(none: Running) -> None:
    voted = none.post("/vote", ask(*SOLUTIONS)).json()
    assert (voted["answer"], voted["strategy"], voted["model"]) == ("2", "majority", "")
    assert voted["why_majority"] == "no model is served, which would give rewards"
    assert none.post("/vote/hmr", ask(*SOLUTIONS)).json()["decided_by"] == "majority"
    compared = none.post("/vote/compare", ask(*SOLUTIONS)).json()["strategies"]
    assert {*compared} == {"majority", "hmr"}


def test_scores_that_are_sent_decide_as_elsewhere(none: Running) -> None:
    assert none.post("/vote/prm", ask(*RATED)).json()["answer"] == "1"
    assert none.post("/score_steps", ask(*RATED)).json()["solutions"][0]["reward"] == 0.9
    assert {"prm", "wrf"} < {*none.post("/vote/compare", ask(*RATED)).json()["strategies"]}


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/score_steps", ask(*SOLUTIONS), "no model is served here"),
        ("/vote/prm", ask(*SOLUTIONS), "prm needs the candidates' rewards"),
        ("/preview", {"problem": PROBLEM, "solution": "1"}, "no model is served here"),
        ("/vote/majority", ask(*SOLUTIONS, model="x"), "no served model has the name"),
    ],
)
def test_what_needs_a_model_is_refused(none: Running, path: str, body: Any, detail: str) -> None:
    refused = none.post(path, body)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(detail)


def test_the_server_is_ready_and_says_what_it_is(none: Running) -> None:
    assert none.get("/readyz").json() == {"status": "ok"}
    about = none.get("/model").json()
    assert (about["engine"], about["models"], about["default_strategy"]) == ("none", [], "majority")


def test_a_gateway_votes_by_majority() -> None:
    with upstream(boxed(1), boxed(2), boxed(2)) as sampled, serving({}, upstream_url=sampled.url) as running:
        answer, report = elected(running, budget=3, stable=1, round=3)
        refused = running.post(
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"strategy": "prm"}},
        )
    assert answer.choices[0].message.content == boxed(2)
    assert report["strategy"] == "majority"
    assert refused.status_code == 422


def test_the_setting_loads_nothing() -> None:
    assert Settings(model=["none"]).models() == {}
    with pytest.raises(SettingsInvalid, match="needs a model, and --model none serves none"):
        Settings.read({"model": "none", "adapter": "x"})
    assert not imported("-c", "import server.models.load") & MODELS
