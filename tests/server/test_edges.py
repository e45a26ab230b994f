"""What happens between requests: shared batches, callers who leave, a model that fails, the end."""

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest
from starlette.types import Message

from server import protocol, service
from server.app import create_app
from server.settings import Settings
from tests.server.harness import PATIENCE, Background, Running, ask, boxed, raw, read, serving, until
from unprm.engines.fake import FakeEngine, FakeFormat, hashed
from unprm.types import Encoded


class Held:
    """A server whose engine is held in a first batch."""

    def __init__(self, **options: Any) -> None:
        self.gate = threading.Event()
        self.engine = FakeEngine(gate=self.gate, **options)

    def block(self, server: Running) -> Background:
        first = Background(lambda: server.post("/score_steps", ask("first")))
        until(lambda: len(self.engine.batches) == 1)
        return first


def test_concurrent_requests_share_batches_and_get_their_own_scores() -> None:
    held = Held()
    with serving(held.engine) as server:
        first = held.block(server)
        with ThreadPoolExecutor(16) as pool:
            texts = [f"solution {number}" for number in range(16)]
            answers = [pool.submit(server.post, "/score_steps", ask(text)) for text in texts]
            until(lambda: server.metric("unprm_queued_requests") == 16)
            held.gate.set()
            for text, answer in zip(texts, answers, strict=True):
                assert answer.result().json()["solutions"][0]["step_scores"] == list(hashed(read(text)))
        first.result()
    assert len(held.engine.batches) == 2
    assert set(held.engine.batches[1]) == {read(text) for text in texts}


@pytest.mark.parametrize("path", ["/score_steps", "/vote/prm", "/vote/compare"])
def test_who_goes_away_frees_the_place_and_never_runs(path: str) -> None:
    held = Held()
    with serving(held.engine) as server:
        first = held.block(server)
        gone = server.connect(raw(ask(boxed(1, "gone"), boxed(2, "gone")), path))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        stays = Background(lambda: server.post("/score_steps", ask("stays")))
        until(lambda: server.metric("unprm_queued_requests") == 2)
        gone.close()
        until(lambda: server.metric("unprm_queued_requests") == 1)
        assert server.metric("unprm_queued_tokens") == len(read("stays").ids)
        held.gate.set()
        assert first.result().status_code == stays.result().status_code == 200
        assert server.metric(f'unprm_requests_total{{route="{path}",status="499"}}') == 1
    assert held.engine.batches[1:] == [(read("stays"),)]


def test_who_goes_away_in_the_middle_of_the_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server, caplog.at_level(logging.INFO):
        connection = server.connect(raw(1, length=100))
        until(lambda: server.metric("unprm_running_requests") == 1)
        connection.close()
        until(lambda: server.metric("unprm_running_requests") == 0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_who_sends_slowly_runs_out_of_time() -> None:
    with serving(max_request_seconds=0.2) as server:
        connection = server.connect(raw(1, length=100))
        assert b"504" in connection.recv(1000).splitlines()[0]
        connection.close()


@pytest.mark.parametrize("before", [b"", raw(ask("a"))])
@pytest.mark.parametrize("head", [b"", b"POST /score_steps", b"GET /healthz HTTP/1.1\r\nX-Slow: "])
def test_who_never_ends_a_head_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, before: bytes, head: bytes) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with serving() as server, server.connect(before + head) as connection:
        connection.settimeout(PATIENCE)
        answers = b""
        while part := connection.recv(65536):  # a byte now and then would not help
            answers += part
            if head:
                connection.sendall(b"x")
        assert answers.count(b"HTTP/1.1 200 OK") == (1 if before else 0)


def test_a_head_without_end_is_hung_up_on_before_it_fills_the_memory() -> None:
    sent = 0
    with serving() as server, server.connect(b"GET / HTTP/1.1\r\n") as connection, suppress(OSError):
        for number in range(10_000):
            sent += connection.send(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            time.sleep(0.0005)
    assert protocol.HEAD_BYTES <= sent < 5_000_000


def test_a_request_that_takes_long_outlasts_the_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with serving(FakeEngine(delay=0.6)) as server:
        for _ in range(2):
            assert server.post("/score_steps", ask("a")).status_code == 200


def test_bodies_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_BODIES", 2)
    with serving(max_body_bytes=1000) as server:
        held = [server.connect(raw(None, length=1000) + b" " * 900) for _ in range(2)]
        until(lambda: server.metric("unprm_running_requests") == 2)
        refused = server.post("/score_steps", ask("x" * 500))
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert "1800 bytes, of 2000" in refused.json()["detail"]
        for connection in held:
            connection.close()
        until(lambda: server.metric("unprm_running_requests") == 0)
        assert server.post("/score_steps", ask("x" * 500)).status_code == 200


def test_a_second_request_on_the_same_connection_is_answered_in_turn() -> None:
    held = Held()
    with serving(held.engine) as server:
        connection = server.connect(raw(ask("one")))
        until(lambda: len(held.engine.batches) == 1)
        connection.sendall(raw(ask("two"), "/score_steps", "Connection: close"))
        held.gate.set()
        answers = b""
        while part := connection.recv(65536):
            answers += part
        connection.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert held.engine.batches == [(read("one"),), (read("two"),)]


@pytest.mark.parametrize("failure", [RuntimeError("CUDA error"), MemoryError(), SystemExit(1), StopIteration()])
def test_a_failing_engine_answers_every_waiter_and_recovers(failure: BaseException) -> None:
    held = Held(failures={1: failure})
    with serving(held.engine) as server:
        first = held.block(server)
        waiting = [
            Background(lambda text=text: server.post("/score_steps", ask(text)))  # type: ignore[misc]
            for text in ("a", "b", "c")
        ]
        until(lambda: server.metric("unprm_queued_requests") == 3)
        held.gate.set()
        assert [answer.result().status_code for answer in waiting] == [503, 503, 503]
        assert first.result().status_code == 200
        assert server.get("/readyz").status_code == 200
        assert server.post("/score_steps", ask("a")).status_code == 200


@pytest.mark.parametrize("scores", [[], [0.5, 0.5], [math.nan], [1.5], [-1.0], [math.inf]])
def test_what_is_no_score_never_reaches_a_caller(scores: list[float]) -> None:
    with serving(FakeEngine(scores=lambda _: scores)) as server:
        response = server.post("/vote/prm", ask(boxed(1), boxed(2)))
        assert (response.status_code, response.json()["code"]) == (503, "model_unavailable")


def test_a_comparing_process_that_dies_changes_no_vote() -> None:
    with serving() as server:
        own = psutil.Process()
        before = set(own.children())
        answers = [f"\\sin({number}x)+x" for number in range(6)] + ["x+\\sin(5x)"]
        body = {"solutions": [{"steps": ["a"], "step_scores": [0.5], "answer": answer} for answer in answers]}
        until(lambda: server.post("/vote/majority", body).json()["tie"] is False)  # the processes are there
        (worker,) = set(own.children()) - before
        late = server.metric("unprm_equivalence_timeouts_total")
        worker.kill()
        for number in range(20, 30):
            others = [answer.replace("x)", f"{number}x)") for answer in answers]
            body = {"solutions": [{"steps": ["a"], "step_scores": [0.5], "answer": answer} for answer in others]}
            voted = server.post("/vote/majority", body).json()
            assert voted["candidates"][0]["members"] == [5, 6]
        assert server.metric("unprm_equivalence_timeouts_total") == late


def test_shutting_down_finishes_what_runs_and_refuses_what_comes() -> None:
    held = Held()
    with serving(held.engine) as server:
        first = held.block(server)
        waiting = Background(lambda: server.post("/score_steps", ask("waiting")))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        server.server.should_exit = True
        until(lambda: server.get("/readyz").status_code == 503)
        for response in (server.get("/readyz"), server.post("/score_steps", ask("late"))):
            assert (response.status_code, response.json()["code"]) == (503, "shutting_down")
            assert int(response.headers["retry-after"]) >= 1
        assert server.get("/healthz").status_code == 200
        held.gate.set()
        assert first.result().status_code == waiting.result().status_code == 200
    assert held.engine.batches[1:] == [(read("waiting"),)]
    assert held.engine.closed


def test_shutting_down_answers_what_does_not_finish_in_time() -> None:
    held = Held()
    with serving(held.engine, drain_seconds=0.2) as server:
        first = held.block(server)
        waiting = Background(lambda: server.post("/score_steps", ask("waiting")))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        server.server.should_exit = True
        for answer in (first.result(), waiting.result()):
            assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")
        held.gate.set()
    assert len(held.engine.batches) == 1


def test_the_event_loop_answers_while_texts_are_encoded_and_the_model_works() -> None:
    class SlowFormat(FakeFormat):
        def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
            time.sleep(1)
            return super().encode(problem, steps)

    def probes(path: str, body: Any) -> int:
        """How many are answered during a request."""
        work, count = Background(lambda: server.post(path, body)), 0
        while work.running:
            assert server.get("/healthz").status_code == 200
            count += 1
        assert work.result().status_code == 200
        return count

    engine = FakeEngine(delay=1)
    with serving(engine) as server:
        assert probes("/score_steps", ask("a")) > 20
    engine = FakeEngine()
    engine.format = SlowFormat()
    with serving(engine) as server:
        assert probes("/score_steps", ask("a")) > 20
        assert probes("/preview", {"problem": "p", "solution": "a"}) > 20


def test_an_answer_on_its_way_is_not_cut_off() -> None:
    """The deadline passes, and the caller leaves, between the beginning of the answer and its end."""

    async def test() -> None:
        sent: list[Message] = []
        received: list[Message] = [
            {"type": "http.request", "body": json.dumps(ask(boxed(1), boxed(2))).encode(), "more_body": False}
        ]
        passed = asyncio.get_running_loop().time() + 1.1

        async def receive() -> Message:
            while not (received or sent):
                await asyncio.sleep(0.01)
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)
            while asyncio.get_running_loop().time() < passed:
                await asyncio.sleep(0.01)

        headers = [(b"content-type", b"application/json"), (b"x-request-timeout", b"1")]
        scope = {"type": "http", "method": "POST", "path": "/vote/majority", "headers": headers}
        more = {"query_string": b"", "root_path": "", "http_version": "1.1", "scheme": "http"}
        await create_app(Settings(), FakeEngine())(scope | more, receive, send)
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[0]["status"] == 200
        assert json.loads(sent[1]["body"])["strategy"] == "majority"

    asyncio.run(test())


def test_many_leave_and_many_stay() -> None:
    """Random leaving under load: who stays is answered rightly, and nothing is left over."""

    async def one(client: httpx.AsyncClient, number: int) -> None:
        timeout = 0.01 * (number % 7) if number % 2 else PATIENCE
        try:
            response = await client.post("/score_steps", json=ask(f"text {number}"), timeout=timeout + 0.001)
        except httpx.TimeoutException:
            assert number % 2
        else:
            assert response.json()["solutions"][0]["step_scores"] == list(hashed(read(f"text {number}")))

    async def all_of_them() -> None:
        async with httpx.AsyncClient(base_url=server.url) as client:
            await asyncio.gather(*(one(client, number) for number in range(80)))

    with serving(FakeEngine(delay=0.02), batch_tokens=60) as server:
        asyncio.run(all_of_them())
        until(lambda: server.metric("unprm_running_requests") == 0)
        assert server.metric("unprm_queued_tokens") == server.metric("unprm_queued_requests") == 0
