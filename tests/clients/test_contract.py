"""Both clients against the real server: every call, every field of its answers, every error."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

import unprm.errors
from server.problem_details import TABLE
from tests.fake_engine import FakeEngine
from tests.server.harness import PROBLEM, Running, ask, boxed, serving
from unprm.votes.registry import REWARD_STRATEGIES
from unprm.wire import PairIn
from unprm_client import AsyncClient, Client, SolutionIn, errors

SOLUTIONS: list[Any] = [
    "one\n\ntwo \\boxed{1}",
    boxed(2, "a"),
    ("a", "tuple \\boxed{2}"),
    {"id": "x", "text": "only", "answer": "7"},
    SolutionIn(steps=["a", "b"], answer="1", step_scores=[0.9, 0.2]),
]
JSON: list[Any] = [
    *SOLUTIONS[:2],
    list(SOLUTIONS[2]),
    SOLUTIONS[3],
    {"steps": ["a", "b"], "answer": "1", "step_scores": [0.9, 0.2]},
]
Calls = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, server: Running) -> Calls:
    """Calls a method of one of the clients by its name."""
    return caller(request.param, server.url)


def caller(kind: str, url: str, **more: Any) -> Calls:
    def made(name: str, *arguments: Any, **options: Any) -> Any:
        if kind == "sync":
            with Client(url, **more) as client:
                return getattr(client, name)(*arguments, **options)

        async def run() -> Any:
            async with AsyncClient(url, **more) as client:
                return await getattr(client, name)(*arguments, **options)

        return asyncio.run(run())

    return made


def dumped(response: Any) -> Any:
    return response.model_dump(mode="json")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggregate": "mean", "threshold": 0.7},
        {"log_odds": True, "model": "fake"},
        {"model": ["fake"], "timeout": 20.0},
    ],
)
def test_scores_are_the_server_s(server: Running, call: Calls, options: dict[str, Any]) -> None:
    sent = {name: value for name, value in options.items() if name != "timeout"}
    server.post("/score_steps", ask(*JSON))  # from here on the usage is the same
    expected = server.post("/score_steps", ask(*JSON, **sent)).json()
    assert dumped(call("score_steps", PROBLEM, SOLUTIONS, **options)) == expected


@pytest.mark.parametrize("strategy", REWARD_STRATEGIES)
@pytest.mark.parametrize("options", [{}, {"aggregate": "last", "threshold": 0.9, "log_odds": True}])
def test_votes_are_the_server_s(server: Running, call: Calls, strategy: str, options: dict[str, Any]) -> None:
    server.post("/score_steps", ask(*JSON))
    expected = server.post(f"/vote/{strategy}", ask(*JSON, **options)).json()
    assert dumped(call("vote", PROBLEM, SOLUTIONS, strategy, **options)) == expected


def test_a_vote_without_a_name_is_the_server_s_default(server: Running, call: Calls) -> None:
    server.post("/vote", ask(*JSON))
    expected = server.post("/vote", ask(*JSON)).json()
    assert dumped(call("vote", problem=PROBLEM, solutions=SOLUTIONS)) == expected
    assert dumped(call("vote", PROBLEM, SOLUTIONS, None)) == expected


def test_alpha_reaches_wrf_and_compare(server: Running, call: Calls) -> None:
    server.post("/score_steps", ask(*JSON))
    for alpha in (0.0, 1.0):
        expected = server.post("/vote/wrf", ask(*JSON, alpha=alpha)).json()
        assert dumped(call("vote", PROBLEM, SOLUTIONS, "wrf", alpha=alpha)) == expected
        expected = server.post("/vote/compare", ask(*JSON, alpha=alpha)).json()
        assert dumped(call("compare", PROBLEM, SOLUTIONS, alpha=alpha)) == expected


def test_a_problem_is_not_needed_for_given_scores(server: Running, call: Calls) -> None:
    given = {"steps": ["a"], "answer": "1", "step_scores": [0.5]}
    assert call("vote", None, [given], "prm").answer == "1"


def test_step_scores_may_be_given_as_to_the_library(call: Calls) -> None:
    texts = ["\\boxed{1}", ["a", "\\boxed{2}"]]
    voted = call("vote", PROBLEM, texts, "prm", step_scores=[[0.2], (0.9, 0.8)])
    assert (voted.answer, voted.usage.tokens) == ("2", 0)
    assert call("vote", PROBLEM, texts, "prm", step_scores=[[1.0], None]).solutions[1].step_scores is not None
    with pytest.raises(
        unprm.errors.InvalidRequest, match="step_scores: expected a list for each of 2 solutions, got 1"
    ):
        call("vote", PROBLEM, texts, "prm", step_scores=[[0.2]])


def test_trajectories_stand_in_place_of_solutions(server: Running, call: Calls) -> None:
    task = {"role": "user", "content": "What is the capital of Peru?"}
    given = [{"messages": [task, {"role": "assistant", "content": f"It is {{{name}}}."}]} for name in ("Lima", "Cusco")]
    for more in ({}, {"problem": "Answer briefly."}):
        sent = {"trajectories": given, **more}
        server.post("/score_steps", sent)  # from here on the usage is the same
        assert dumped(call("score_steps", **sent)) == server.post("/score_steps", sent).json()
        assert dumped(call("vote", strategy="prm", **sent)) == server.post("/vote/prm", sent).json()
        assert dumped(call("compare", **sent)) == server.post("/vote/compare", sent).json()


def test_grades_are_the_server_s(server: Running, call: Calls) -> None:
    pairs = [
        {"id": "a", "answer": "0.50", "gold": ["1/3", "1/2"]},
        PairIn(text="It is (C).", gold="C"),
        PairIn(gold="C"),
    ]
    sent = [pairs[0], {"text": "It is (C).", "gold": "C"}, {"gold": "C"}]
    for options in ({}, {"extraction": "choice"}):
        expected = server.post("/grade", {"pairs": sent, **options}).json()
        assert dumped(call("grade", pairs, timeout=20.0, **options)) == expected
    with pytest.raises(errors.InvalidRequest) as caught:
        call("grade", [{"answer": "1"}])
    assert caught.value.errors[0].pointer == "/pairs/0/gold"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_vote_is_judged_by_the_id_that_it_has_from_the_server(kind: str, tmp_path: Path) -> None:
    with serving(journal=tmp_path / "j") as running:
        call = caller(kind, running.url)
        vote = call("vote", PROBLEM, SOLUTIONS[1:3], "majority")
        assert dumped(call("feedback", vote.request_id, answer="2.0", timeout=20.0)) == {
            "correct": True,
            "accept": None,
        }
        assert not call("feedback", vote.request_id, correct=False).correct
        with pytest.raises(errors.InvalidRequest, match="the journal has no vote") as caught:
            call("feedback", "another", correct=True)
        for options in ({}, {"correct": True, "answer": "2"}, {"answer": " "}):
            with pytest.raises(errors.InvalidRequest):
                call("feedback", vote.request_id, **options)
    assert caught.value.errors[0].pointer == "/request_id"
    assert unprm.vote(None, ["1", "1"], "majority").request_id is None


def test_describes_as_the_server(server: Running, call: Calls) -> None:
    assert dumped(call("model")) == server.get("/model").json()
    assert call("model", "fake").name == "fake"


def test_every_code_of_the_server_has_an_exception() -> None:
    assert set(TABLE) <= set(errors.BY_CODE)


def test_an_error_is_the_same_class_in_a_program_and_from_a_server(server: Running, call: Calls) -> None:
    with pytest.raises(unprm.errors.NoAnswer) as here:
        unprm.vote(None, ["I can't tell.", "Nor can I."], "majority")
    with pytest.raises(unprm.errors.NoAnswer) as there:
        call("vote", PROBLEM, ["I can't tell.", "Nor can I."], "majority")
    assert str(here.value) in str(there.value)
    assert here.value.pointer == there.value.pointer == "/solutions"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_errors_of_a_server_are_exceptions(kind: str) -> None:
    options: dict[str, Any] = {"max_solutions": 2, "max_steps": 3, "max_body_bytes": 2000, "api_key": "k"}
    with serving(FakeEngine(max_tokens=60), **options) as running:
        call = caller(kind, running.url, api_key="k")
        expected: list[tuple[type[errors.ClientError], list[Any], dict[str, Any]]] = [
            (errors.TooManySolutions, ["a", "b", "c"], {}),
            (errors.TooManySteps, [["a", "b", "c", "d"]], {}),
            (errors.SolutionTooLong, ["a" * 100], {}),
            (errors.BodyTooLarge, ["a" * 2500], {}),
            (errors.UnknownModel, ["a"], {"model": "other"}),
        ]
        for kind_of_error, solutions, more in expected:
            with pytest.raises(kind_of_error) as caught:
                call("score_steps", PROBLEM, solutions, **more)
            assert caught.value.status == TABLE[caught.value.code].status
            assert caught.value.request_id
        with pytest.raises(errors.NoAnswer):
            call("vote", PROBLEM, ["I can't tell."], "majority")
        with pytest.raises(errors.Unauthorized):
            caller(kind, running.url, api_key="other")("score_steps", PROBLEM, ["a"])
        with pytest.raises(errors.NotFound):
            caller(kind, running.url + "/elsewhere", api_key="k")("score_steps", PROBLEM, ["a"])


@pytest.mark.parametrize(
    ("arguments", "options", "pointer"),
    [
        ((PROBLEM, [["a", " "]]), {}, "/solutions/0/1"),
        ((PROBLEM, []), {}, "/solutions"),
        ((None, ["a"]), {}, ""),
        ((PROBLEM, ["a"]), {"threshold": 2.0}, "/threshold"),
        ((PROBLEM, ["a"]), {"alpha": 0.5}, "/alpha"),
        ((PROBLEM, ["\ud800"]), {}, "/solutions/0"),
    ],
)
def test_what_is_wrong_is_told_before_it_is_sent(
    call: Calls, server: Running, arguments: Any, options: dict[str, Any], pointer: str
) -> None:
    """With the pointers and words of the server itself."""
    with pytest.raises(errors.InvalidRequest) as caught:
        call("score_steps", *arguments, **options)
    assert caught.value.status is None
    assert [error.pointer for error in caught.value.errors] == [pointer]
    if arguments[1] != ["\ud800"]:
        problem = {} if arguments[0] is None else {"problem": arguments[0]}
        response = server.post("/score_steps", {**problem, "solutions": arguments[1], **options}).json()
        assert response["errors"] == list(map(asdict, caught.value.errors))


def test_an_unknown_vote_is_told_with_those_there_are(call: Calls) -> None:
    with pytest.raises(errors.InvalidRequest, match="'best' is not a vote; expected one of majority, prm"):
        call("vote", PROBLEM, ["a"], "best")


class Patient(httpx.HTTPTransport):
    """Waits as long as it takes; `grace`: the seconds by which the client would have outlasted the server."""

    grace = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.grace = request.extensions["timeout"]["read"] - float(request.headers["x-request-timeout"])
        request.extensions["timeout"] = {}
        return super().handle_request(request)


def test_a_timeout_is_the_server_s_deadline() -> None:
    """The server tells of it before the client gives up, a second later."""
    gate, transport = threading.Event(), Patient()
    engine = FakeEngine(gate=gate)
    with serving(engine) as running, Client(running.url, timeout=0.2, transport=transport) as client:
        with pytest.raises(errors.DeadlineExceeded, match=r"not answered within 0\.\d+ s") as caught:
            client.score_steps(PROBLEM, ["a"])
        gate.set()
    assert caught.value.request_id  # the server's own word
    assert transport.grace == pytest.approx(1, abs=0.001)


def test_the_clients_are_twins() -> None:
    """They have the same operations; a method of one is the other's, so its arguments are."""
    one, other = ({name for name in vars(kind) if name[0] != "_"} for kind in (Client, AsyncClient))
    assert one == other > {"score_steps", "vote", "compare", "model", "vote_all"}
    assert "strategy" in inspect.signature(AsyncClient.vote).parameters


def test_a_connection_is_used_again(server: Running) -> None:
    with Client(server.url) as client:
        pool = client._http._transport._pool  # type: ignore[attr-defined]
        for _ in range(3):
            client.model()
        assert len(pool.connections) == 1


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999", "http://a:b", "localhost:8000", "127.0.0.1"])
def test_what_is_no_url_is_said_to_be_none(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(errors.ConnectionFailed, match="the server's URL can't be used: "):
            kind(url)


def test_the_address_of_something_else_is_said_to_be_that() -> None:
    page = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>"))
    with Client(transport=page) as client, pytest.raises(errors.UnexpectedResponse, match="not a ModelResponse"):
        client.model()
    gone = httpx.MockTransport(lambda request: httpx.Response(404, text="<html>"))
    with Client(transport=gone) as client, pytest.raises(errors.UnexpectedResponse, match="status 404"):
        client.model()
