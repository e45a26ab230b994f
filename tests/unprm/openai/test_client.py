"""The client of OpenAI's HTTP API, against servers that answer, fail and come back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, TypeVar

import pytest

from tests.fakes import Refusal, at_once, openai_server
from tests.support import PATIENCE, free_port
from unprm.openai.client import NEUTRAL, PAUSE, OpenAIClient, distance
from unprm.openai.errors import APIConnectionError, APIError, APIResponseError, APIStatusError, ErrorFields
from unprm.retries import FIRST_WAIT
from unprm.task_groups import all_of

Result = TypeVar("Result")
ATTEMPTS = 4


def _echo(body: Any) -> Any:
    return {"answer": body}


def _client(*urls: str, key: str | None = None, attempts: int = ATTEMPTS, **options: Any) -> OpenAIClient:
    return OpenAIClient(urls, key, timeout=5, attempts=attempts, **{"sleep": at_once, **options})


def _run(client: OpenAIClient, story: Callable[[], Awaitable[Result]]) -> Result:
    async def closing() -> Result:
        try:
            return await story()
        finally:
            await client.close()

    return asyncio.run(closing())


def _post(client: OpenAIClient, body: Any = None) -> Any:
    return _run(client, lambda: client.post("/chat/completions", body or {"n": 1}))


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_json_goes_in_and_comes_out(end: str) -> None:
    with openai_server(_echo) as (url, seen):
        client = _client(url + end, key="secret")

        async def story() -> Any:
            parts = [part async for part in client.parts("/models", None)]
            return await client.post("/completions", {"top_k": 3}), b"".join(parts[1:])

        assert _run(client, story) == ({"answer": {"top_k": 3}}, b'{"answer": null}')
    assert [request.path for request in seen] == ["/v1/models", "/v1/completions"]
    assert {request.authorization for request in seen} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("end", "asked"),
    [
        ("/v1beta/openai/", "/v1beta/openai/chat/completions"),
        ("/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("/inference", "/inference/chat/completions"),
        ("/openai/deployments/d?api-version=2024-10-21", "/openai/deployments/d/chat/completions"),
        ("/openai/deployments/d/chat/completions?api-version=1", "/openai/deployments/d/chat/completions"),
    ],
)
def test_a_base_url_is_used_as_given(end: str, asked: str) -> None:
    with openai_server(_echo, statuses=[404]) as (url, seen):
        client = _client(url + end, key="k")

        async def story() -> Any:
            with pytest.raises(APIStatusError, match=f"{asked} answered 404"):
                await client.post("/chat/completions", {})

        _run(client, story)
    assert seen[0].path.partition("?")[::2] == (asked, end.partition("?")[2])


def test_without_a_key_none_is_sent() -> None:
    with openai_server(_echo) as (url, seen):
        _post(_client(url))
    assert seen[0].authorization is None


def test_passing_errors_are_tried_again() -> None:
    with openai_server(_echo, statuses=[503, 429, 500]) as (url, seen):
        assert _post(_client(url), {"seed": 7}) == {"answer": {"seed": 7}}
    assert [request.body for request in seen] == [{"seed": 7}] * 4


@pytest.mark.parametrize(("status", "attempts"), [(503, ATTEMPTS), (400, 1), (401, 1), (404, 1)])
def test_errors_are_raised_once_another_attempt_is_in_vain(status: int, attempts: int) -> None:
    with (
        openai_server(_echo, statuses=[status] * 9) as (url, seen),
        pytest.raises(APIStatusError, match=f"answered {status}") as caught,
    ):
        _post(_client(url))
    assert (len(seen), caught.value.attempts, caught.value.status) == (attempts, attempts, status)


def test_by_default_there_is_one_attempt() -> None:
    with openai_server(_echo, statuses=[503] * 9) as (url, seen), pytest.raises(APIStatusError):
        _post(OpenAIClient([url], None, timeout=5))
    assert len(seen) == 1


def test_every_attempt_is_observed() -> None:
    seen: list[str] = []

    def observe(seconds: float, outcome: str) -> None:
        assert seconds >= 0
        seen.append(outcome)

    async def cancelled(client: OpenAIClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.post("/completions", {})

    with openai_server(_echo, statuses=[503, 404]) as (url, _):
        with pytest.raises(APIStatusError):
            _post(_client(url, observe=observe))
        _post(_client(url, observe=observe))
        with pytest.raises(APIResponseError):
            _post(_client(url, max_bytes=3, observe=observe))
        client = _client(url, observe=observe)
        _run(client, lambda: cancelled(client))
    with pytest.raises(APIConnectionError):
        _post(_client(url, attempts=1, observe=observe))
    assert seen == ["5xx", "4xx", "ok", "unreadable", "cancelled", "unreachable"]


def test_a_server_that_asks_for_patience_is_left_alone_as_long() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with openai_server(_echo, statuses=[429, 500, 500], headers={"Retry-After": "9"}) as (url, _):
        _post(_client(url, sleep=sleep))
    assert all(0.5 <= (wait - 9) / (FIRST_WAIT * 2**k) <= 1.5 for k, wait in enumerate(waits))
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("17", 17.0), ("0", 0.0), ("-1", None), ("Tue, 24 Nov 1994 05:00:00 GMT", 0.0), ("9" * 400, None), ("soon", None)],
)
def test_retry_after_is_known_to_the_caller(value: str, seconds: float | None) -> None:
    with (
        openai_server(_echo, statuses=[429], headers={"Retry-After": value}) as (url, _),
        pytest.raises(APIStatusError) as caught,
    ):
        _post(_client(url, attempts=1))
    assert caught.value.retry_after == seconds


def test_texts_are_in_no_error() -> None:
    """The server's own words are kept apart, since they may repeat what was sent."""
    with openai_server(_echo, statuses=[400]) as (url, _), pytest.raises(APIStatusError) as caught:
        _post(_client(url), {"prompt": "CANARY" + 600 * "x"})
    assert "CANARY" not in repr(caught.value)
    assert caught.value.message is not None
    assert "CANARY" in caught.value.message
    assert len(caught.value.message) == 500
    with openai_server(lambda body: b"CANARY") as (url, _), pytest.raises(APIResponseError) as unreadable:
        _post(_client(url))
    assert "CANARY" not in repr(unreadable.value)
    assert unreadable.value.__cause__ is None


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[" * 1000 + b"]" * 1000, "not JSON"),
        (rb'{"text": "\ud800"}', "not JSON"),
        (b"[" + b" " * 5000 + b"]", "longer than 4096 bytes"),
    ],
)
def test_an_answer_that_can_t_be_read_is_refused(payload: bytes, message: str) -> None:
    with openai_server(lambda body: payload) as (url, seen), pytest.raises(APIResponseError, match=message):
        _post(_client(url, max_bytes=4096 if len(payload) < 9000 else 10**6))
    assert len(seen) == 1


def _samples(client: OpenAIClient, *bodies: Any) -> Any:
    async def story() -> Any:
        return [await client.sample("/completions", body) for body in bodies]

    return _run(client, story)


def test_samples_leave_no_setting_to_the_server() -> None:
    with openai_server(_echo) as (url, _):
        assert _samples(_client(url), {"n": 2, "top_k": 5}) == [{"answer": {**NEUTRAL, "n": 2, "top_k": 5}}]


@pytest.mark.parametrize(
    "refusal",
    [
        lambda names: Refusal(400, {"error": {"message": f"Unrecognized request arguments supplied: {names}"}}),
        lambda names: Refusal(422, {"detail": [{"loc": ["body", names[0]], "type": "extra_forbidden"}]}),
        lambda names: Refusal(400, [{"error": {"code": 400, "message": f'Unknown name "{names[0]}"'}}]),
    ],
    ids=["all at once", "one at a time", "in another form"],
)
def test_what_a_strict_server_names_is_sent_no_more(refusal: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A server that takes only top_k of the fields."""

    def strict(body: Any) -> Any:
        unknown = [name for name in body if name in NEUTRAL and name != "top_k"]
        return refusal(unknown) if unknown else {"answer": body}

    with openai_server(strict) as (url, seen):
        answers = _samples(_client(url), {"seed": 1}, {"seed": 2}, {"seed": 3})
    assert answers == [{"answer": {"top_k": -1, "seed": seed}} for seed in (1, 2, 3)]
    assert sum(request.body["seed"] == 2 for request in seen) > 1
    assert sum(request.body["seed"] == 3 for request in seen) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the server refuses min_p, repetition_penalty, repeat_penalty, so its own values are in force; where that is "
        "vLLM, start it with --generation-config vllm"
    ]


def test_a_request_that_is_refused_for_another_reason_costs_no_field() -> None:
    """Be it that the server's answer repeats the request, or that it finds fault with a second one, too."""

    def answer(body: Any) -> Any:
        return Refusal(400, b"top_k, or whatever") if body["seed"] == 2 else {"answer": body}

    with openai_server(answer, statuses=[400, 401]) as (url, seen):
        client = _client(url)

        async def story() -> Any:
            for seed, status in ((1, 400), (1, 401), (2, 400)):
                with pytest.raises(APIStatusError, match=f"answered {status}"):
                    await client.sample("/completions", {"seed": seed})
            return await client.sample("/completions", {"seed": 3})

        assert _run(client, story) == {"answer": {**NEUTRAL, "seed": 3}}
    assert [len(request.body) for request in seen] == [5, 5, 5, 4, 5]


def test_a_stream_is_passed_through() -> None:
    payload = b"data: {}\n\n" * 100

    async def story() -> bytes:
        async with aclosing(client.parts("/chat/completions", b'{"stream": true}')) as parts:
            return b"".join([part async for part in parts])

    async def abandoned() -> list[str]:
        async with aclosing(client.parts("/chat/completions", b"{}")) as parts:
            await anext(parts)
        return outcomes

    with openai_server(lambda body: payload) as (url, seen):
        client = _client(url)
        assert _run(client, story) == payload
        outcomes: list[str] = []
        client = _client(url, observe=lambda seconds, outcome: outcomes.append(outcome))
        assert _run(client, abandoned) == ["cancelled"]
    assert seen[0].body == {"stream": True}
    with openai_server(_echo, statuses=[503, 503]) as (url, seen):
        client = _client(url)
        with pytest.raises(APIStatusError):
            _run(client, story)
        assert len(seen) == 1
    client = _client(url)
    with pytest.raises(APIConnectionError):
        _run(client, story)


def test_a_question_stays_with_its_server_and_questions_are_spread() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(openai_server(_echo)) for _ in range(3)]
        client = _client(*(url for url, _ in servers))

        async def story() -> None:
            for number in range(90):
                await client.post("/completions", {"question": number % 30}, f"question {number % 30}")

        _run(client, story)
        shares = [{request.body["question"] for request in seen} for _, seen in servers]
    assert all(shares)
    assert sum(map(len, shares)) == len(set().union(*shares)) == 30


def test_a_dead_server_is_left_out_and_taken_back_in() -> None:
    now = 0.0

    async def ask(client: OpenAIClient) -> None:
        for number in range(20):
            await client.post("/completions", {}, f"question {number}")

    async def story() -> tuple[tuple[int, int], int, int]:
        nonlocal now
        with openai_server(_echo) as (alive, kept):
            with openai_server(_echo) as (mortal, lost):
                client = _client(alive, mortal, clock=lambda: now)
                await ask(client)
                shares = len(kept), len(lost)
            await ask(client)
            taken_over = len(kept) - shares[0]
            with openai_server(_echo, port=int(mortal.rpartition(":")[2])) as (_, back):
                await ask(client)
                assert not back
                now = PAUSE
                await ask(client)
                await client.close()
                return shares, taken_over, len(back)

    shares, taken_over, back = asyncio.run(story())
    assert min(shares) > 0
    assert sum(shares) == taken_over == 20
    assert back == shares[1]


def test_a_server_that_has_answered_is_trusted_as_before() -> None:
    """Its pauses double while it stays dead, and begin anew once it has answered."""
    now, tried = 0.0, list[float]()

    def observe(seconds: float, outcome: str) -> None:
        if outcome == "unreachable":
            tried.append(now)

    async def ask_until(client: OpenAIClient, question: str, end: float) -> None:
        nonlocal now
        while now < end:
            await client.post("/completions", {}, question)
            now += PAUSE

    async def story() -> int:
        with openai_server(_echo) as (mortal, _):
            port = int(mortal.rpartition(":")[2])
        with openai_server(_echo) as (alive, _):
            question = next(q for q in map(str, range(99)) if distance(q, mortal) < distance(q, alive))
            client = _client(alive, mortal, clock=lambda: now, observe=observe)
            await ask_until(client, question, 15 * PAUSE)
            with openai_server(_echo, port=port) as (_, back):
                await ask_until(client, question, 16 * PAUSE)
            await ask_until(client, question, 18 * PAUSE)
            await client.close()
            return len(back)

    assert asyncio.run(story()) == 1
    assert [at / PAUSE for at in tried] == [0, 1, 3, 7, 16, 17]


def test_servers_that_are_all_dead_are_reported() -> None:
    with openai_server(_echo) as (url, _):
        pass
    with pytest.raises(APIError, match="ConnectError") as caught:
        _post(_client(url))
    assert isinstance(caught.value, APIConnectionError)
    assert (caught.value.reason, caught.value.attempts) == ("ConnectError", ATTEMPTS)


def test_a_server_may_stay_dead_for_ever() -> None:
    with openai_server(_echo) as (url, _):
        pass

    async def story() -> None:
        for _ in range(1100):
            with pytest.raises(APIConnectionError):
                await client.post("/completions", {})

    client = _client(url, attempts=1)
    _run(client, story)


def test_no_more_samples_are_drawn_at_a_time_than_a_server_has_slots() -> None:
    gate, running, seen_by_gate = threading.Event(), list[int](), list[int]()

    def answer(body: Any) -> Any:
        if "x" in body:
            running.append(body["x"])
            gate.wait(PATIENCE)
        return body

    async def story() -> list[Any]:
        samples = asyncio.create_task(all_of(client.sample("/completions", {"x": number}) for number in range(6)))
        while len(running) < 2:
            await asyncio.sleep(0.005)
        for _ in range(3):  # after what was sent before
            await client.post("/completions", {})
        seen_by_gate.extend(running)
        gate.set()
        return await samples

    with openai_server(answer, slots=2) as (url, _):
        client = _client(url)
        answers = _run(client, story)
    assert [each["x"] for each in answers] == list(range(6))
    assert len(seen_by_gate) == 2


@pytest.mark.parametrize(("slots", "found"), [((2, 3), 5), ((2, None), None), ((0,), None)])
def test_slots_are_known_if_all_servers_tell_them(slots: Sequence[int | None], found: int | None) -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(openai_server(_echo, slots=each))[0] for each in slots]
        client = _client(*urls)
        assert _run(client, client.slots) == found


def test_a_server_that_is_not_there_yet_is_asked_for_its_slots_again() -> None:
    port = free_port()
    client = _client(f"http://127.0.0.1:{port}")

    async def story() -> list[int | None]:
        found = [await client.slots()]
        with openai_server(_echo, slots=7, port=port):
            found.append(await client.slots())
        return [*found, await client.slots()]

    assert _run(client, story) == [None, 7, 7]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "too long"}', "too long"),
        (b'{"error": {"code": 1}}', None),
        (b'[{"error": {"code": 400, "message": "too long"}}]', "too long"),
        (b'{"object": "error", "message": "too long", "code": 400}', "too long"),
        (b'{"status": 400, "error": "Bad Request", "message": "too long"}', "too long"),
        (b'{"detail": "too long"}', "too long"),
        (b'{"detail": [{"loc": ["body", "n"], "msg": "too long"}, {"loc": ["m"]}]}', "body.n: too long; m"),
        (b"too\nlong\n", "too long"),
        (b"<html>", None),
    ],
)
def test_an_error_has_the_words_of_the_server(content: bytes, words: str | None) -> None:
    assert ErrorFields.parse(content).message == words


def test_an_error_has_the_fields_of_the_api() -> None:
    inner = {"message": "m", "code": "context_length_exceeded", "type": "invalid_request_error", "param": "messages"}
    own = ErrorFields.read({"error": inner})
    assert own == ErrorFields("m", "context_length_exceeded", "invalid_request_error", "messages", None)
    top = ErrorFields.read({"object": "error", "message": "m", "type": "NotFoundError", "param": None, "code": 404})
    assert top == ErrorFields("m", None, "NotFoundError", None, 404)
    odd = ErrorFields.read({"error": {"message": "m", "code": {"a": 1}, "type": 5, "param": [], "status": "429"}})
    assert odd == ErrorFields("m", status=429)
