"""A demonstration decides no vote outside its domain that was not named, and whatever has its scores says so."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.harness import Running, boxed, serving

INSIDE = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
OUTSIDE = "What is 3 + 4?"
SPLIT: list[Any] = [
    [f"Step 1: 23 + {n} = 68. The answer is \\boxed{{{answer}}}."] for answer, n in ((7, 45), (8, 5), (8, 6))
]
"""Candidates of which no vote is unanimous."""
RATED = [{"steps": ["s"], "answer": answer, "step_scores": [0.5]} for answer in ("7", "8", "8")]


WHY = "rewards by fake, a demonstration, mean nothing outside its domain"


def ask(problem: str, solutions: list[Any] = SPLIT, **more: Any) -> dict[str, Any]:
    return {"problem": problem, "solutions": solutions, **more}


@pytest.fixture(scope="module")
def demo() -> Iterator[Running]:
    """A server that was started without a model's name."""
    with serving(FakeEngine(demo=True)) as running:
        yield running


@pytest.fixture(scope="module")
def named() -> Iterator[Running]:
    """A server of a demonstration that its operator asked for."""
    with serving(FakeEngine(demo=True), model=["unprm-mini"]) as running:
        yield running


@pytest.mark.parametrize(
    ("body", "strategy"),
    [
        (ask(INSIDE), "wrf"),
        (ask(OUTSIDE), "majority"),
        ({"solutions": SPLIT}, "majority"),  # without a problem there is none that it knows
        (ask(OUTSIDE, model="fake"), "majority"),
        (ask(OUTSIDE, RATED), "wrf"),  # by the caller's scores
        (ask(OUTSIDE, [*RATED, boxed(9)]), "majority"),
    ],
)
def test_the_default_vote_of_a_demonstration_depends_on_the_problem(
    demo: Running, named: Running, body: dict[str, Any], strategy: str
) -> None:
    for running in (demo, named):
        taken = running.post("/vote", body).json()
        why = taken.pop("why_majority", None)
        assert taken == running.post(f"/vote/{strategy}", body).json() | {"usage": taken["usage"]}
        assert taken["strategy"] == strategy
        assert why == (WHY if strategy == "majority" else None)


def test_a_ranking_takes_rewards_of_its_domain_alone(demo: Running) -> None:
    steps = ["Step 1: 23 + 45 = 68.", "Step 1: 23 + 45 = 78."]
    assert demo.post("/rerank", {"query": INSIDE, "documents": steps}).status_code == 200
    refused = demo.post("/rerank", {"query": OUTSIDE, "documents": steps})
    assert refused.status_code == 422
    assert "fake is a demonstration" in refused.json()["detail"]


def test_the_log_says_how_to_serve_a_real_model(caplog: pytest.LogCaptureFixture) -> None:
    with serving(FakeEngine(demo=True)):
        assert "A real verifier: --model" in caplog.text


def test_elsewhere_the_default_vote_is_wrf(server: Running) -> None:
    taken = server.post("/vote", ask(OUTSIDE, alpha=1.0)).json()
    assert taken == server.post("/vote/wrf", ask(OUTSIDE, alpha=1.0)).json() | {"usage": taken["usage"]}
    assert taken["strategy"] == "wrf"


@pytest.mark.parametrize("body", [ask(OUTSIDE), ask(INSIDE, [*SPLIT, boxed(8)])])
def test_a_vote_by_rewards_is_by_majority_where_problem_or_steps_are_foreign(
    demo: Running, body: dict[str, Any]
) -> None:
    for path in ("prm", "wrf", "weighted"):
        taken = demo.post(f"/vote/{path}", body).json()
        assert (taken["strategy"], taken["answer"], taken["why_majority"]) == ("majority", "8", WHY)
        assert {each["reward"] for each in taken["solutions"]} == {None}


def test_clients_learn_the_default(server: Running, demo: Running, named: Running) -> None:
    assert [running.get("/model").json()["default_strategy"] for running in (server, demo, named)] == [
        "wrf",
        "majority",
        "majority",
    ]


@pytest.mark.parametrize("path", ["/score_steps", "/vote/prm", "/vote/wrf", "/vote/compare"])
def test_what_has_scores_of_a_demonstration_says_so(server: Running, demo: Running, named: Running, path: str) -> None:
    begin = "fake is a demonstration: its 5 million parameters know one small domain, word problems over the integers"
    for running in (demo, named):
        inside, outside = (running.post(path, ask(problem)).json()["demonstration"] for problem in (INSIDE, OUTSIDE))
        assert (inside["in_domain"], outside["in_domain"]) == (True, False)
        assert inside["detail"].startswith(begin)
        assert inside["detail"].endswith("problem and steps are in it.")
        assert outside["detail"].startswith(begin)
        assert outside["detail"].endswith(
            "problem and steps are not all in it: in place of its scores, equations in the steps are checked."
        )
        assert running.post(path, ask(OUTSIDE, RATED)).json()["demonstration"] is None
    assert server.post(path, ask(OUTSIDE)).json()["demonstration"] is None


def test_a_vote_without_scores_says_nothing_of_a_demonstration(demo: Running) -> None:
    for path, solutions in (("majority", SPLIT), ("hmr", SPLIT), ("wrf", SPLIT[:1]), ("prm", SPLIT[1:])):
        assert demo.post(f"/vote/{path}", ask(INSIDE, solutions)).json()["demonstration"] is None


def test_of_several_models_the_demonstration_is_named() -> None:
    with serving({"real": FakeEngine(), "toy": FakeEngine(demo=True)}, model=["real=a", "toy=b"]) as running:
        both = running.post("/score_steps", ask(INSIDE, model=["real", "toy"])).json()
        assert both["demonstration"]["detail"].startswith("toy is a demonstration: ")
        assert running.post("/score_steps", ask(INSIDE)).json()["demonstration"] is None


@pytest.mark.parametrize(
    ("problem", "settings", "terms", "strategy", "in_domain"),
    [
        (INSIDE, {}, {}, "wrf", True),
        (OUTSIDE, {"model": ["unprm-mini"]}, {"model": "fake"}, "majority", False),
        (INSIDE, {}, {"strategy": "wrf"}, "wrf", True),
        (OUTSIDE, {}, {"strategy": "prm"}, "prm", False),
        (OUTSIDE, {"gateway_strategy": "weighted"}, {}, "weighted", False),
    ],
)
def test_the_gateway_s_default_is_that_of_a_vote(
    problem: str, settings: dict[str, Any], terms: dict[str, Any], strategy: str, in_domain: bool | None
) -> None:
    message = {"model": "m", "messages": [{"role": "user", "content": problem}], "unprm": {"budget": 3, **terms}}
    texts = ["\n\n".join(each) for each in SPLIT]
    with upstream(*texts) as reasoner, serving(FakeEngine(demo=True), upstream_url=reasoner.url, **settings) as running:
        report = running.post("/v1/chat/completions", message).json()["unprm"]
    assert report["strategy"] == strategy
    assert (f"the vote is by majority, as none was named: {WHY}" in report["notes"]) == (strategy == "majority")
    found = report["demonstration"]
    assert (found and found["in_domain"]) == in_domain
