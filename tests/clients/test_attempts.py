"""When a call is made again, and when not."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.harness import PROBLEM, Running, ask
from unprm.retries import Attempts
from unprm.wire import ProblemDetails
from unprm_client import AsyncClient, Client, errors
from unprm_client._base import attempt, model, pause


def problem(code: str, status: int) -> ProblemDetails:
    return ProblemDetails(type="t", title="t", status=status, detail="d", code=code, request_id="r")


def refusal(code: str, status: int, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.Response(status, headers=headers, content=problem(code, status).model_dump_json())


OVERLOADED = errors.Overloaded("busy", retry_after=3.0)
UNAVAILABLE = errors.ModelUnavailable("gone")
GONE = errors.ConnectionFailed("gone")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(clock: Clock, seconds: float = 60.0, maximum: int = 5, jitter: float = 0.5) -> Attempts:
    return Attempts(maximum, seconds, clock, lambda: jitter)


def begin(made: Attempts) -> tuple[str, float]:
    """What the next attempt tells the server, and the seconds for which its answer is waited for."""
    with httpx.Client(base_url="http://a") as http:
        request = attempt(model({"name": None}), http, made)
    return request.headers["X-Request-Timeout"], request.extensions["timeout"]["read"]


def test_waits_grow_and_are_spread() -> None:
    made, waits = attempts(Clock(), maximum=12, seconds=1000.0), []
    for _ in range(11):
        begin(made)
        waits.append(pause(made, GONE))
    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert waits[-1] == 15.0
    early = attempts(Clock(), jitter=0.0)
    begin(early)
    assert pause(early, GONE) == 0.125


def test_never_earlier_than_the_server_asks() -> None:
    made = attempts(Clock())
    begin(made)
    assert pause(made, OVERLOADED) == 3.25


@pytest.mark.parametrize("error", [OVERLOADED, UNAVAILABLE, GONE])
def test_gives_up_with_the_last_error_after_all_attempts(error: errors.ClientError) -> None:
    made = attempts(Clock(), maximum=2)
    begin(made)
    pause(made, error)
    begin(made)
    with pytest.raises(type(error)):
        pause(made, error)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("no"),
        errors.Unauthorized("no"),
        errors.DeadlineExceeded(3.0),
        errors.UnexpectedResponse(200, "a page"),
    ],
)
def test_does_not_repeat_what_would_not_change(error: errors.ClientError) -> None:
    made = attempts(Clock())
    begin(made)
    with pytest.raises(type(error)):
        pause(made, error)


def test_does_not_wait_past_the_deadline() -> None:
    made = attempts(Clock(), seconds=3.0)
    begin(made)
    with pytest.raises(errors.Overloaded):
        pause(made, OVERLOADED)


def test_every_attempt_has_what_is_left_of_the_time() -> None:
    clock = Clock()
    made = attempts(clock, seconds=10.0)
    assert begin(made)[0] == "10.000"
    clock.now += 4.0
    told, seconds = begin(made)
    assert told == "6.000"
    assert 6.0 < seconds <= 7.5  # the server's own word is waited for
    clock.now += 6.0
    with pytest.raises(errors.DeadlineExceeded, match="within its 10 s"):
        begin(made)


class Flaky:
    """Answers of a server, one after the other; `requests`: those that it got."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = itertools.chain(answers, itertools.repeat(answers[-1]))
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def test_a_call_outlives_a_server_that_comes_back(server: Running) -> None:
    """With one request, sent as it was, and a later deadline."""
    good = server.post("/score_steps", ask("a"))
    broken = httpx.ConnectError("refused")
    flaky = Flaky(broken, refusal("overloaded", 429, {"Retry-After": "0"}), httpx.ReadError("cut"), good)
    with Client(transport=httpx.MockTransport(flaky)) as client:
        assert client.score_steps(PROBLEM, ["a"]).model_dump(mode="json") == good.json()
    again = Flaky(broken, refusal("shutting_down", 503), good)

    async def run() -> Any:
        async with AsyncClient(transport=httpx.MockTransport(again)) as client:
            return await client.score_steps(PROBLEM, ["a"])

    assert asyncio.run(run()).model_dump(mode="json") == good.json()
    for requests in (flaky.requests, again.requests):
        assert {json.dumps(json.loads(request.content)) for request in requests} == {json.dumps(ask("a"))}
        seconds = [float(request.headers["x-request-timeout"]) for request in requests]
        assert seconds == sorted(seconds, reverse=True)
        assert len({request.headers["x-question-hash"] for request in requests}) == 1
    assert (len(flaky.requests), len(again.requests)) == (4, 3)


def test_a_server_that_stays_away_is_told_as_that() -> None:
    flaky = Flaky(httpx.ConnectError("refused"))
    with Client(transport=httpx.MockTransport(flaky), attempts=2) as client:
        with pytest.raises(
            errors.ConnectionFailed, match=r"the server at http://127\.0\.0\.1:8000 can't be reached: refused"
        ):
            client.score_steps(PROBLEM, ["a"])
        assert len(flaky.requests) == 2


def test_an_answer_that_never_comes_is_a_deadline() -> None:
    flaky = Flaky(httpx.ReadTimeout("slow"))
    with Client(transport=httpx.MockTransport(flaky)) as client, pytest.raises(errors.DeadlineExceeded):
        client.model()
    assert len(flaky.requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (httpx.ReadTimeout("slow"), errors.DeadlineExceeded, " did not answer within "),
        (httpx.ConnectTimeout("slow"), errors.ConnectionFailed, " can't be reached: slow"),
        (httpx.ReadError("cut"), errors.ConnectionFailed, ": ReadError: cut"),
        (httpx.Response(404, text="<html>"), errors.UnexpectedResponse, " an unprm server?"),
        (httpx.Response(200, text="<html>"), errors.UnexpectedResponse, ": the body is not a ModelResponse"),
    ],
)
def test_an_error_names_the_server_and_no_password(answer: Any, kind: type[Exception], says: str) -> None:
    transport = httpx.MockTransport(Flaky(answer))
    with Client("http://me:secret@prm:81", transport=transport, attempts=1) as client, pytest.raises(kind) as caught:
        client.model()
    assert f"the server at http://prm:81{says}" in str(caught.value)


def test_newer_servers_may_tell_more(server: Running) -> None:
    """Fields that are new, in answers and errors, and codes."""
    newer = server.post("/score_steps", ask("a")).json() | {"new": 1}
    newer["solutions"][0]["new"] = 2
    with Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=newer))) as client:
        assert client.score_steps(PROBLEM, ["a"]).solutions[0].steps == ["a"]
    for status, kind in ((422, errors.RequestRefused), (503, errors.TryAgain)):
        body = problem("brand_new", status).model_dump() | {"new": 3}
        answer = httpx.Response(status, json=body)
        with Client(transport=httpx.MockTransport(Flaky(answer)), attempts=1) as client:
            with pytest.raises(kind) as caught:
                client.score_steps(PROBLEM, ["a"])
            assert type(caught.value) is kind
            assert caught.value.code == "brand_new"
