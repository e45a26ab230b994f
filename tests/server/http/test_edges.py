"""What happens between requests: shared batches, callers who leave, a model that fails, the end."""

import asyncio
import json
import logging
import math
import resource
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import trustme
import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from server import slow_connections
from server.app import create_app
from server.lease import Admission, Lease
from server.models.model import Model
from server.routes import route as routes
from server.settings import Settings
from tests.fake_engine import FakeEngine, FakeFormat, hashed
from tests.server.harness import Background, Running, ask, boxed, raw, read, serving
from tests.support import PATIENCE, asynchronous, until
from unprm import wire
from unprm.fair_shares import Capacity
from unprm.types import Encoded, StepTag


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
        with ThreadPoolExecutor(8) as pool:
            texts = [f"solution {number}" for number in range(8)]
            answers = [pool.submit(server.post, "/score_steps", ask(text)) for text in texts]
            until(lambda: server.metric("unprm_queued_requests") == 8)
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
    with serving(max_request_seconds=0.05) as server:
        connection = server.connect(raw(1, length=100))
        assert b"504" in connection.recv(1000).splitlines()[0]
        connection.close()


class Wire(asyncio.Transport):
    """What a connection writes; `closed` and `aborted`: whether it hung up."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(app: Any) -> tuple[slow_connections.BoundedProtocol, Wire]:
    """A new connection to an ASGI app."""
    connection = slow_connections.BoundedProtocol(uvicorn.Config(app, log_config=None), ServerState(), {})
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    ("before", "head"),
    [
        (b"", b""),  # after an answer the next request may be waited for
        *product((b"", raw(ask("a"))), (b"POST /score_steps", b"GET /healthz HTTP/1.1\r\nX-Slow: ")),
    ],
)
@asynchronous
async def test_who_never_ends_a_head_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, before: bytes, head: bytes) -> None:
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.0)
    connection, wire = connected(greet)
    connection.data_received(before + head)
    while not wire.closed:  # a byte now and then does not help
        await asyncio.sleep(0)
        connection.data_received(b"x" if head else b"")
    assert wire.written.count(b"HTTP/1.1 200 OK") == (1 if before else 0)


@pytest.mark.parametrize("late", [False, True])
@asynchronous
async def test_a_connection_is_kept_between_requests(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Clients keep theirs for a minute and more, and don't ask again for what a server hung up on."""
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.0)
    connection, wire = connected(greet)
    for count in (1, 2):
        connection.data_received(raw(ask("a")))
        while wire.written.count(b"HTTP/1.1 200 OK") < count:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert not wire.closed
    if late:  # the next one has as long for its head as the first
        connection.data_received(b"POST /score_steps")
        while not wire.closed:
            await asyncio.sleep(0)


def test_idle_connections_are_closed_after_a_time_that_can_be_set() -> None:
    with serving(keep_alive_seconds=0.1) as server, server.connect(raw(ask("a"))) as connection:
        connection.settimeout(PATIENCE)
        while connection.recv(1 << 16):
            pass
    assert Settings().keep_alive_seconds == 75


def test_a_head_without_end_is_hung_up_on_before_it_fills_the_memory() -> None:
    sent = 0
    with serving() as server, server.connect(b"GET / HTTP/1.1\r\n") as connection, suppress(OSError):
        for number in range(10_000):
            sent += connection.send(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            time.sleep(0.0005)
    assert slow_connections.HEAD_BYTES <= sent < 5_000_000


@asynchronous
async def test_a_request_that_takes_long_outlasts_the_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.0)
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await gate.wait()
        await greet(scope, receive, send)

    connection, wire = connected(slow)
    connection.data_received(raw(ask("a")))
    await begun.wait()
    await asyncio.sleep(0.01)
    assert not wire.closed
    gate.set()
    while not wire.closed:
        await asyncio.sleep(0)
    assert wire.written.startswith(b"HTTP/1.1 200 OK")


def test_trailers_without_end_are_hung_up_on_before_they_fill_the_memory() -> None:
    head = raw(None, "/score_steps", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    sent = 0
    with serving() as server, server.connect(head + b"2\r\n{}\r\n0\r\n") as connection, suppress(OSError):
        for number in range(10_000):
            sent += connection.send(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            time.sleep(0.0005)
    assert slow_connections.HEAD_BYTES <= sent < 5_000_000


@asynchronous
async def test_a_body_that_goes_on_after_the_answer_is_hung_up_on() -> None:
    connection, wire = connected(greet)
    connection.data_received(raw(None, length=10_000_000))
    connection.data_received(b"x" * 2 * slow_connections.HEAD_BYTES)
    assert not wire.closed  # the application may still read it
    while not wire.written:
        await asyncio.sleep(0)
    connection.data_received(b"x" * slow_connections.HEAD_BYTES)
    assert not wire.closed
    connection.data_received(b"x")
    assert wire.closed


def test_a_trailer_is_no_header() -> None:
    head = b"POST /score_steps HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving() as server, server.connect(head + b"2\r\n{}\r\n0\r\n") as connection:
        connection.sendall(b"Content-Type: application/json\r\n\r\n")
        assert b" 415 " in connection.recv(1000).splitlines()[0]


def test_many_small_chunks_are_no_trailers() -> None:
    body = json.dumps(ask("a" * 20_000)).encode()
    head = raw(None, "/score_steps", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    with serving(FakeEngine(max_tokens=30_000)) as server, server.connect(head) as connection:
        connection.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert b" 200 " in connection.recv(1000).splitlines()[0]


@pytest.fixture
def callers(tmp_path: Path) -> Path:
    """A file with the keys of two callers, `many` and `one`."""
    file = tmp_path / "keys"
    file.write_text("many 11111111\none 22222222\n")
    return file


MANY, ONE = {"Authorization": "Bearer 11111111"}, {"Authorization": "Bearer 22222222"}


def test_bodies_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch, callers: Path) -> None:
    monkeypatch.setattr("server.lease.BODIES", 6)
    monkeypatch.setattr(routes, "OBJECT_BYTES", 0)
    monkeypatch.setattr(routes, "VALUE_BYTES", 0)
    with serving(max_body_bytes=1000, api_keys_file=callers) as server:
        server.http.headers.update(ONE)
        head = raw(None, "/score_steps", "Authorization: Bearer 11111111", length=1000)
        held = [server.connect(head + b" " * 900) for _ in range(3)]
        until(lambda: server.metric("unprm_running_requests") == 3)
        refused = server.post("/score_steps", ask("x" * 500), headers=MANY)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert "2700 bytes of this caller" in refused.json()["detail"]
        assert "2760 of 6000" in refused.json()["detail"]
        assert server.post("/score_steps", ask("x" * 500)).status_code == 200  # of another caller
        for connection in held:
            connection.close()
        until(lambda: server.metric("unprm_running_requests") == 0)
        assert server.post("/score_steps", ask("x" * 500), headers=MANY).status_code == 200


@pytest.mark.parametrize(("before", "more"), [(0, b""), (1000, b" "), (90_000, b"")])
@asynchronous
async def test_a_body_that_stalls_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, before: int, more: bytes) -> None:
    monkeypatch.setattr(routes, "PART_SECONDS", 0.01)
    parts = [b" " * before]

    async def receive() -> Message:
        if not (parts or more):
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return {"type": "http.request", "body": parts.pop() if parts else more, "more_body": True}

    with pytest.raises(HTTPException, match="the body arrives too slowly") as refused:
        await routes.read_body(Headers(), receive, 10_000_000, lambda size: None)
    assert refused.value.status_code == 504


def test_a_body_that_stalls_is_its_caller_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PART_SECONDS", 0.01)
    with serving() as server, server.connect(raw(None, length=100_000)) as connection:
        assert b" 504 " in connection.recv(10_000).splitlines()[0]
        until(lambda: server.metric('unprm_requests_total{status="504",code="caller_deadline"}') == 1)


def test_an_address_has_its_share_of_the_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = Capacity(8, "connections")
    monkeypatch.setattr(slow_connections, "connections", lambda: room)
    with serving() as server:
        held = [server.connect(b"") for _ in range(4)]
        until(lambda: len(server.server.server_state.connections) == 4)
        refused = server.connect(b"")
        refused.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            assert refused.recv(1) == b""
        other = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=server.url, transport=other) as client:
            assert client.get("/healthz").status_code == 200
        held.pop().close()
        until(lambda: len(server.server.server_state.connections) < 5)
        assert server.get("/healthz").status_code == 200
        server.server._report_shortage()  # as it does every ten seconds
        until(lambda: "1 connections were refused" in caplog.text)
        for connection in (*held, refused):
            connection.close()


def test_who_is_silent_before_tls_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.05)
    with serving(ssl_certfile=tmp_path / "own.pem") as server, server.connect(b"") as connection:
        connection.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_a_lack_of_files_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving() as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() // 2, limit[1]))
        try:
            server.server._report_shortage()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert "no more connections can be accepted: Too many open files" in caplog.text


def long_answer(server: Running, *more: str) -> socket.socket:
    """A connection on which an answer of 6 MB, which its buffers can't hold, was asked for."""
    body = {"solutions": [{"steps": ["x" * 6_000_000], "step_scores": [0.5]}]}
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(raw(body, "/score_steps", *more))
    return connection


@pytest.mark.parametrize("more", [(), ("Connection: close",)])
def test_who_does_not_read_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]) -> None:
    monkeypatch.setattr(slow_connections, "WRITE_SECONDS", 0.05)
    with serving() as server, long_answer(server, *more) as connection:
        until(lambda: server.metric("unprm_running_requests") == 1)
        until(lambda: server.metric("unprm_running_requests") == 0)
        until(lambda: len(server.server.server_state.connections) <= 1)  # that of the metrics
        connection.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            while connection.recv(1 << 20):
                pass


@asynchronous
async def test_the_rest_of_an_answer_has_to_be_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left in the connection's own buffer holds it up no longer than more would."""
    monkeypatch.setattr(slow_connections, "HEAD_SECONDS", 0.0)
    monkeypatch.setattr(slow_connections, "WRITE_SECONDS", 0.0)
    connection, wire = connected(greet)
    while not wire.aborted:  # nothing comes, and the peer reads nothing
        await asyncio.sleep(0)
        connection.resume_writing()
    assert wire.closed


def test_an_answer_takes_memory_until_it_is_read(callers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.lease.BODIES", 4)
    with serving(api_keys_file=callers) as server:
        server.http.headers.update(ONE)
        with long_answer(server, "Authorization: Bearer 11111111"):
            until(lambda: server.service.admission.bodies.taken > 12_000_000)  # its body and its answer
            long = ask({"steps": ["x" * 3_000_000], "step_scores": [0.5]})
            assert server.post("/score_steps", long, headers=MANY).status_code == 429
            assert server.post("/score_steps", ask("a")).status_code == 200  # of another caller
        until(lambda: server.metric("unprm_running_requests") == 0)
        assert server.post("/score_steps", long, headers=MANY).status_code == 200


def test_an_answer_in_the_moment_when_time_runs_out_is_sent() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def route(_scope: Scope, _receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # as where the time of a part runs out with the whole's
            await asyncio.sleep(PATIENCE)
        await send({"type": "http.response.start", "status": 504, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run() -> None:
        lease = Lease(Admission(max_body_bytes=1), arrived=asyncio.get_running_loop().time())
        async with lease.admitted(0.01, 0.01):
            await routes.answer(route, {}, never, send, lease)

    asyncio.run(run())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


class Recorded(FakeFormat):
    """Lists what it is to encode in `begun`, and encodes it once `gate` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: list[tuple[str, str]] = []

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        self.begun.append((problem, steps[0]))
        self.gate.wait(PATIENCE)
        return super().encode(problem, steps)


def recording() -> tuple[Recorded, FakeEngine]:
    """An engine and its format."""
    engine = FakeEngine()
    engine.format = Recorded()
    return engine.format, engine


def test_what_cannot_fit_is_not_encoded() -> None:
    format, engine = recording()
    format.gate.set()
    long = "x" * 8200
    with serving(engine) as server:
        for path in ("/score_steps", "/vote/prm"):
            assert server.post(path, ask(boxed(1, long), boxed(2, long))).json()["code"] == "solution_too_long"
        assert server.post("/preview", {"problem": "p", "solution": long}).json()["code"] == "solution_too_long"
        assert format.begun == []


def test_a_problem_that_cannot_fit_is_not_encoded_for_each_solution() -> None:
    format, engine = recording()
    format.gate.set()
    format.longest_token = 8
    with serving(engine) as server:
        refused = server.post("/score_steps", {"problem": "x" * 9000, "solutions": ["a", "b", "c"]})
    assert "solution 0 with its problem takes 9003 tokens, the limit is 8192" in refused.json()["detail"]
    assert format.begun == [("x" * 9000, "a"), ("x" * 9000, "1")]


def test_who_goes_away_is_not_encoded_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "PIECE", 1)
    format, engine = recording()
    with serving(engine) as server:
        with server.connect(raw(ask("first", "second", "third"))):
            until(lambda: len(format.begun) == 1)
        until(lambda: server.metric("unprm_running_requests") == 0)
        format.gate.set()
        assert server.post("/score_steps", ask("after")).status_code == 200
    assert [step for _, step in format.begun] == ["first", "after"]


def test_what_is_encoded_for_a_caller_is_bounded(monkeypatch: pytest.MonkeyPatch, callers: Path) -> None:
    monkeypatch.setattr(Model, "PIECE", 100)
    format, engine = recording()
    with serving(engine, max_body_bytes=1000, api_keys_file=callers) as server:
        server.http.headers.update(ONE)
        running = [
            Background(lambda text=text: server.post("/score_steps", ask(text * 600), headers=MANY))  # type: ignore[misc]
            for text in "ab"
        ]
        until(lambda: len(format.begun) == 2)
        refused = server.post("/score_steps", ask("c" * 600), headers=MANY)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "1000 characters of this caller" in refused.json()["detail"]
        running.append(Background(lambda: server.post("/score_steps", ask("d" * 600))))
        running.append(Background(lambda: server.post("/score_steps", ask("short"), headers=MANY)))
        until(lambda: server.metric("unprm_running_requests") == 4)
        format.gate.set()
        assert [call.result().status_code for call in running] == [200] * 4


def test_a_long_body_is_checked_while_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, checking = threading.Event(), threading.Event()

    def spans(text: str, mode: str, most: int, tags: Sequence[StepTag], *, exact: bool) -> list[tuple[int, int]]:
        if len(text) > 100_000:
            checking.set()
            gate.wait(PATIENCE)
        return [(0, len(text))]

    monkeypatch.setattr(wire.step_text, "spans", spans)
    with serving() as server:
        given = {"text": "x" * 200_000, "step_scores": [0.5]}
        long = Background(lambda: server.post("/score_steps", ask(given)))
        assert checking.wait(PATIENCE)
        assert server.post("/score_steps", ask("a")).status_code == 200
        gate.set()
        assert long.result().status_code == 200


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
    at_work, gate = threading.Event(), threading.Event()

    def hold() -> None:
        at_work.set()
        gate.wait(2 * PATIENCE)  # longer than a health check may take

    class SlowFormat(FakeFormat):
        def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
            hold()
            return super().encode(problem, steps)

    def slow(item: Encoded) -> Sequence[float]:
        hold()
        return hashed(item)

    def check(path: str, body: Any) -> None:
        at_work.clear()
        gate.clear()
        work = Background(lambda: server.post(path, body))
        assert at_work.wait(PATIENCE)
        assert server.get("/healthz").status_code == 200
        gate.set()
        assert work.result().status_code == 200

    with serving(FakeEngine(scores=slow)) as server:
        check("/score_steps", ask("a"))
    engine = FakeEngine()
    engine.format = SlowFormat()
    long = "a" * (Model.PIECE // 16)
    with serving(engine) as server:
        check("/score_steps", ask(long))
        check("/preview", {"problem": "p", "solution": long})


def test_an_answer_on_its_way_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes and the caller disconnects while the answer is being sent."""

    async def test() -> None:
        sent: list[Message] = []
        received: list[Message] = [
            {"type": "http.request", "body": json.dumps(ask(boxed(1), boxed(2))).encode(), "more_body": False}
        ]
        loop, sending = asyncio.get_running_loop(), asyncio.Event()

        async def receive() -> Message:
            if not received:
                await sending.wait()
            return received.pop() if received else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)
            sending.set()
            late = loop.time() + 61
            monkeypatch.setattr(loop, "time", lambda: late)
            for _ in range(10):  # whoever waits for the deadline or the caller learns of it
                await asyncio.sleep(0)

        headers = [(b"content-type", b"application/json"), (b"x-request-timeout", b"60")]
        scope = {"type": "http", "method": "POST", "path": "/vote/majority", "headers": headers}
        more = {"query_string": b"", "root_path": "", "http_version": "1.1", "scheme": "http"}
        await create_app(Settings(), FakeEngine())(scope | more, receive, send)
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert sent[0]["status"] == 200
        assert json.loads(sent[1]["body"])["strategy"] == "majority"

    asyncio.run(test())


def test_many_leave_and_many_stay() -> None:
    """Callers disconnect at random under load: the others get the right answers, and nothing stays in the queue."""

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
