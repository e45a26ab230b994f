"""Many chat requests with one budget of candidates."""

from typing import Any

from starlette.responses import PlainTextResponse

from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, Upstream, upstream
from tests.server.gateway.harness import boxed, gateway
from tests.server.harness import Running

PATH = "/v1/chat/completions/bulk"


def request(problem: str, **unprm: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": problem}], "unprm": unprm}


def answered(running: Running, budget: int, *requests: dict[str, Any]) -> dict[str, Any]:
    response = running.post(PATH, {"requests": requests, "budget": budget})
    assert response.status_code == 200, response.text
    return dict(response.json())


def by_problem(reasoner: Upstream, texts: dict[str, list[str]]) -> None:
    """Gives each problem candidates of its own."""
    reasoner.for_problem = {problem: list(reversed(each)) for problem, each in texts.items()}


def test_candidates_go_where_the_vote_is_open() -> None:
    texts = {"easy": [boxed(1)] * 20, "hard": [boxed(k) for k in range(20)]}
    terms = {"strategy": "majority", "round": 2, "budget": 16, "stable": 0.9}
    with upstream() as reasoner, gateway(reasoner) as running:
        by_problem(reasoner, texts)
        got = answered(running, 14, request("easy", **terms), request("hard", **terms))
        fixed = answered(running, 4, request("easy", **terms), request("hard", **terms))
    easy, hard = (answer["unprm"] for answer in got["data"])
    assert easy["sampled"] < hard["sampled"]
    assert easy["stopped"] == "stable"
    assert (easy["answer"], hard["stopped"]) == ("1", "budget")
    assert got["unprm"] == {"budget": 14, "sampled": easy["sampled"] + hard["sampled"]}
    assert got["unprm"]["sampled"] == 14
    # with two candidates for each there is nothing to distribute
    assert [answer["unprm"]["sampled"] for answer in fixed["data"]] == [2, 2]


def test_of_two_open_votes_the_less_decided_one_gets_the_candidates() -> None:
    texts = {"agreed": [boxed(1)] * 30, "split": [boxed(k) for k in range(30)]}
    terms = {"strategy": "majority", "round": 2, "budget": 16, "stable": 1}
    for order in (["agreed", "split"], ["split", "agreed"]):
        with upstream() as reasoner, gateway(reasoner) as running:
            by_problem(reasoner, texts)
            got = answered(running, 12, *(request(problem, **terms) for problem in order))
        sampled = dict(zip(order, (answer["unprm"]["sampled"] for answer in got["data"]), strict=True))
        assert sampled == {"agreed": 2, "split": 10}


def test_answers_are_chat_completions_in_the_order_of_the_requests() -> None:
    texts = {f"problem {k}": [boxed(k)] * 9 for k in range(12)}
    with upstream() as reasoner, gateway(reasoner) as running:
        by_problem(reasoner, texts)
        got = answered(running, 30, *(request(problem, strategy="majority", stable=0.5) for problem in texts))
        assert running.metric('unprm_votes_total{strategy="majority"}') == 12
    for k, answer in enumerate(got["data"]):
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"]["content"] == boxed(k)
        assert answer["unprm"]["sampled"] == 2  # a twelfth of the budget, and one answer
        assert answer["usage"]["completion_tokens"] == 2 * COMPLETION_TOKENS


def test_the_budget_is_never_exceeded_and_each_request_has_a_candidate() -> None:
    texts = {f"problem {k}": [boxed(k + j) for j in range(30)] for k in range(10)}
    with upstream() as reasoner, gateway(reasoner) as running:
        by_problem(reasoner, texts)
        requests = [request(problem, strategy="majority", stable=1, budget=5) for problem in texts]
        got = answered(running, 17, *requests)
        few = answered(running, 300, *requests)
    sampled = [answer["unprm"]["sampled"] for answer in got["data"]]
    assert sum(sampled) == got["unprm"]["sampled"] == 17
    assert min(sampled) >= 1
    assert [answer["unprm"]["sampled"] for answer in few["data"]] == [5] * 10  # each request's limit holds too


def test_one_that_fails_leaves_the_others_alone() -> None:
    texts = {"fails": [boxed(1)], "works": [boxed(2)] * 4}
    with upstream() as reasoner, gateway(reasoner) as running:
        by_problem(reasoner, texts)
        reasoner.refused = {"fails": PlainTextResponse("x", 500)}
        got = answered(running, 4, request("fails", budget=2), request("works", budget=2))
    failed, worked = got["data"]
    assert (failed["object"], failed["error"]["code"]) == ("error", "upstream_failed")
    assert worked["unprm"]["answer"] == "2"


def test_usage_of_the_prm_is_that_of_all_requests() -> None:
    texts = {name: [boxed(1), boxed(2)] for name in ("a", "b")}
    with upstream() as reasoner, gateway(reasoner, FakeEngine()) as running:
        by_problem(reasoner, texts)
        got = answered(running, 4, *(request(name, strategy="prm", budget=2) for name in texts))
        tokens = sum(answer["unprm"]["usage"]["tokens"] for answer in got["data"])
        assert tokens > 0
        assert running.metric("unprm_tokens_total") == tokens


def test_what_makes_no_sense_is_refused() -> None:
    stream = request("a") | {"stream": True}
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        for body, detail in (
            ({"requests": [request("a")] * 3, "budget": 2}, "expected a candidate for each of 3 requests"),
            ({"requests": [stream], "budget": 2}, "can't stream"),
            ({"requests": [], "budget": 2}, "at least 1"),
            ({"requests": [request("a"), request(" ")], "budget": 2}, '"param": "/requests/1/messages"'),
            ({"requests": [request("a", budget=0)], "budget": 2}, "expected at least 1, got 0"),
            ({"requests": [request("a")]}, "required"),
            ({"requests": [request("a")], "budget": 4097}, "expected at most 4096, got 4097"),
        ):
            refused = running.post(PATH, body)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
            assert detail in refused.text
    assert not reasoner.bodies


def test_candidates_that_an_election_did_not_wait_for_go_to_another() -> None:
    texts = {"easy": [boxed(1)] * 4, "hard": [boxed(k) for k in range(9)]}
    terms = {"strategy": "majority", "budget": 16, "stable": 0.6}
    with upstream(hangs={3: 1}) as reasoner, gateway(reasoner) as running:  # the last of a round of four
        by_problem(reasoner, texts)
        got = answered(running, 8, request("easy", round=4, **terms), request("hard", round=3, **terms))
    assert got["unprm"] == {"budget": 8, "sampled": 8}
