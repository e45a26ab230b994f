"""Replicas on a local Ray cluster: the answers of a server, one replica per question, no request lost when a replica
dies or the model changes."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.http.protocol import HEAD_BYTES
from server.observe.metrics import REPLICA, Metrics, joined
from server.scale.settings import RAY, ScaleSettings
from server.service import BODIES
from tests.server.gateway.test_gateway import refusal
from tests.server.harness import Background, ask, boxed, raw, serving
from tests.server.http.test_keys import bearer
from tests.server.upstream import Upstream, upstream
from tests.support import ROOT, free_port, until
from unprm.affinity import HEADER, bounded, question_hash, ranked
from unprm.engines.fake import FakeEngine
from unprm.types import Usage

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from server.scale.deploy import deploy, wanted  # noqa: E402
from server.scale.entrance import QuestionRouter  # noqa: E402

SLOW, SECONDS = "takes long " * 100, 2.0
KEY, OTHER = "CANARY-first", "CANARY-of-others"
QUESTIONS = [f"How many are {number}?" for number in range(20)]


class Placed(FakeEngine):
    """An engine that names its version and its process."""

    def __init__(self, version: str) -> None:
        super().__init__(delay=0.01)
        self.version = version

    def __reduce__(self) -> Any:
        return Placed, (self.version,)

    def score(self, batch: Any) -> Any:
        if any(len(item.ids) > len(SLOW) for item in batch):
            time.sleep(SECONDS)
        self.description = replace(self.description, name=f"{self.version}-{os.getpid()}")
        return super().score(batch)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the keys of two callers, `KEY` and `OTHER`."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"tests {KEY}\nothers {OTHER}\n")
    return file


@pytest.fixture(scope="module")
def reasoner() -> Iterator[Upstream]:
    """The upstream that the gateway samples from."""
    with upstream("It is \\boxed{7}.", "It is \\boxed{8}.") as running:
        yield running


@pytest.fixture(scope="module")
def settings(keys: Path, reasoner: Upstream) -> ScaleSettings:
    return ScaleSettings(
        port=free_port(),
        replicas=2,
        entrances=2,
        replica_cpus=0.5,
        max_body_bytes=10_000,
        api_keys_file=keys,
        upstream_url=reasoner.url,
    )


@pytest.fixture(scope="module")
def http(settings: ScaleSettings) -> Iterator[httpx.Client]:
    """A client of two replicas."""
    os.environ |= RAY
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}}
    )
    deploy(settings, Placed("old"))
    with httpx.Client(base_url=f"http://127.0.0.1:{settings.port}", timeout=60, headers=bearer(KEY)) as client:
        yield client
    ray.serve.shutdown()
    ray.shutdown()


def replica(http: httpx.Client, question: str, **headers: str) -> str:
    """The replica that answers."""
    http.post("/score_steps", json=ask("a") | {"problem": question}, headers=headers)
    response = http.post("/vote/prm", json=ask(boxed(1), boxed(2)) | {"problem": question}, headers=headers)
    assert response.status_code == 200, response.text
    return str(response.json()["model"])


def test_answers_are_those_of_a_server(http: httpx.Client) -> None:
    with serving() as alone:
        for path, body in (
            ("/score_steps", ask("a", ["b", "c"])),
            ("/vote/wrf", ask(boxed(1, "a"), boxed(2, "b"), boxed(1, "c"))),
            ("/vote/compare", ask(boxed(1, "a"), boxed(2, "b"))),
            ("/preview", {"problem": "p", "solution": "a"}),
            ("/vote/wrf", ask("no answer")),
            ("/score_steps", {"solutions": []}),
            ("/nothing?a=b", {}),
        ):
            ours, theirs = http.post(path, json=body), alone.post(path, body)
            actual, expected = ours.json(), theirs.json()
            assert ours.status_code == theirs.status_code
            for answer in (actual, expected):
                answer.pop("model", None), answer.pop("request_id", None)
            assert actual == expected
    assert http.get("/readyz").json() == {"status": "ok"}


def test_the_entrance_answers_what_it_refuses(http: httpx.Client) -> None:
    large = http.post("/score_steps", json=ask("x" * 20_000))
    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
    late = http.post("/score_steps", json=ask("a"), headers={"X-Request-Timeout": "no"})
    assert (late.status_code, late.json()["code"]) == (422, "invalid_request")
    late = http.post("/score_steps", json=ask("never before"), headers={"X-Request-Timeout": "0.001"})
    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
    mine = http.get("/healthz", headers={"X-Request-ID": "mine"})
    assert mine.headers.get_list("x-request-id") == ["mine"]


def test_ray_logs_nothing_of_what_a_caller_wrote(http: httpx.Client) -> None:
    response = http.post("/CANARY-path?a=CANARY-query", json=ask("CANARY-text"), headers={"X-Request-ID": "CANARY-id"})
    assert response.status_code == 404
    assert replica(http, "CANARY-question", **{"X-Request-ID": "CANARY-id"})
    logs = Path("/tmp/ray", ray.get_runtime_context().get_session_name(), "logs", "serve")
    files = [file for file in logs.rglob("*") if file.is_file()]
    assert any("proxy" in file.name for file in files)
    assert [file for file in files if b"CANARY" in file.read_bytes()] == []


def test_who_has_no_key_is_told_before_the_body_is_read(http: httpx.Client, settings: ScaleSettings) -> None:
    for path in ("/score_steps", "/metrics", "/model"):
        nobody = httpx.post(f"{http.base_url}{path}", json={}, headers=bearer("CANARY-other"))
        assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthorized")
        assert nobody.headers["www-authenticate"] == "Bearer"
    assert httpx.get(f"{http.base_url}/readyz").status_code == 200
    with socket.create_connection(("127.0.0.1", settings.port), timeout=5) as connection:
        connection.sendall(raw(None, "/score_steps", length=100))  # the body never comes
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /score_steps HTTP/1.1\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %b\r\n\r\n2\r\n{}\r\n0\r\n"
        % KEY.encode(),
    ],
)
def test_heads_and_trailers_without_end_are_hung_up_on(
    http: httpx.Client, settings: ScaleSettings, request_line: bytes
) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", settings.port), timeout=5) as connection, suppress(OSError):
        connection.sendall(request_line)
        for number in range(10_000):
            sent += connection.send(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            time.sleep(0.0005)
    assert HEAD_BYTES <= sent < 5_000_000


def test_bodies_of_one_caller_leave_room_for_others(http: httpx.Client, settings: ScaleSettings) -> None:
    head = raw(None, "/score_steps", f"Authorization: Bearer {KEY}", length=settings.max_body_bytes)
    with ExitStack() as stack:
        held = []
        for _ in range(settings.entrances * BODIES):  # each entrance takes half of them
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", settings.port), timeout=5)))
            held[-1].sendall(head + b" " * (settings.max_body_bytes - 1))
        refused = next(readable for readable in iter(lambda: select.select(held, [], [], 5)[0], []))
        assert refused[0].recv(100).startswith(b"HTTP/1.1 429")
        for _ in range(2 * settings.entrances):
            response = http.post("/score_steps", json=ask("a"), headers=bearer(OTHER))
            assert response.status_code == 200


def test_a_body_that_stalls_is_not_waited_for(http: httpx.Client, settings: ScaleSettings) -> None:
    with socket.create_connection(("127.0.0.1", settings.port), timeout=30) as connection:
        connection.sendall(raw(None, "/score_steps", f"Authorization: Bearer {KEY}", length=100))
        answer = b""
        while b"the body comes too slowly" not in answer and (part := connection.recv(10_000)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 504")
    assert b"the body comes too slowly" in answer


def test_keys_are_changed_while_it_runs(http: httpx.Client, keys: Path) -> None:
    def status(key: str) -> int:
        return http.post("/vote/majority", json=ask(boxed(1)), headers=bearer(key)).status_code

    (keys.parent / "next").write_text("tests CANARY-second\n")
    os.replace(keys.parent / "next", keys)
    assert [status(key) for key in (KEY, "CANARY-second") for _ in range(4)] == [401] * 4 + [200] * 4
    (keys.parent / "next").write_text(f"tests {KEY}\nothers {OTHER}\n")
    os.replace(keys.parent / "next", keys)
    assert [status(key) for key in (KEY, "CANARY-second") for _ in range(4)] == [200] * 4 + [401] * 4


def requests_by_replica(http: httpx.Client) -> dict[str, float]:
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.text.count("# TYPE unprm_requests_total counter") == 1
    (family,) = [metric for metric in text_string_to_metric_families(response.text) if metric.name == "unprm_requests"]
    route = {"route": "/score_steps", "status": "200"}
    return {
        sample.labels[REPLICA]: sample.value
        for sample in family.samples
        if sample.name == "unprm_requests_total" and sample.labels.items() >= route.items()
    }


def test_prometheus_sees_all_replicas(http: httpx.Client) -> None:
    for question in QUESTIONS:
        http.post("/score_steps", json=ask("a") | {"problem": question})
    before = requests_by_replica(http)
    assert len(before) == 2
    for question in QUESTIONS:
        http.post("/score_steps", json=ask("a") | {"problem": question})
    after = requests_by_replica(http)
    more = {name: after[name] - before[name] for name in before}
    assert sum(more.values()) == len(QUESTIONS)
    assert all(0 < count < len(QUESTIONS) for count in more.values())


def test_metrics_of_replicas_are_told_apart() -> None:
    one, other = Metrics(), Metrics()
    for each, usage in ((one, Usage(3, 2, 1)), (other, Usage(5, 5, 0))):
        each.answered("/a", 200, "", 0.1)
        each.used("m", usage)
    merged = joined([("x", one.collect()), ("y", other.collect())])
    families = {metric.name: metric for metric in text_string_to_metric_families(merged.decode())}
    assert set(families) == {metric.name for metric in text_string_to_metric_families(one.text().decode())}
    totals = [sample for sample in families["unprm_tokens"].samples if sample.name.endswith("_total")]
    assert {sample.labels[REPLICA]: sample.value for sample in totals} == {"x": 3, "y": 5}
    buckets = [sample for sample in families["unprm_request_seconds"].samples if sample.labels.get("le") == "+Inf"]
    assert [sample.labels for sample in buckets] == [{REPLICA: name, "route": "/a", "le": "+Inf"} for name in "xy"]


def test_a_question_has_its_replica(http: httpx.Client) -> None:
    first = {question: replica(http, question) for question in QUESTIONS}
    assert len(set(first.values())) == 2
    assert all(replica(http, question) == first[question] for question in QUESTIONS)
    named = {HEADER: question_hash(QUESTIONS[0])}
    assert all(replica(http, question, **named) == first[QUESTIONS[0]] for question in QUESTIONS)


CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "What is 3 + 4?"}],
    "unprm": {"budget": 4, "round": 2, "stable": 1},
}


@contextmanager
def streamed(http: httpx.Client, reasoner: Upstream, go_on: threading.Event, **headers: str) -> Iterator[Iterator[Any]]:
    """The gateway's events after those of the first round, for a request whose second round waits for `go_on`."""
    reasoner.held = {len(reasoner.bodies) + 1: go_on}
    given = reasoner.given
    with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line)
        next(events)
        assert [json.loads(next(events))["unprm"]["progress"]["sampled"] for _ in range(3)] == [1, 2, 2]
        assert reasoner.given == given + 2  # it came before the rest was there
        yield events


def test_the_gateway_answers_as_it_goes(http: httpx.Client, reasoner: Upstream) -> None:
    go_on = threading.Event()
    with streamed(http, reasoner, go_on) as events:
        go_on.set()
        *_, report, done = events
    assert done == "[DONE]"
    assert json.loads(report)["unprm"]["sampled"] == 4
    whole = http.post("/v1/chat/completions", json=CHAT)
    assert whole.status_code == 200
    assert whole.json()["unprm"]["sampled"] == 4
    assert whole.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_gateway_is_refused_has_its_status(http: httpx.Client, reasoner: Upstream, stream: bool) -> None:
    """But for a stream, which has begun."""
    reasoner.errors = {len(reasoner.bodies): refusal(400, "too long")}
    response = http.post("/v1/chat/completions", json=CHAT | {"stream": stream})
    status, last = (200, response.text.split("data: ")[-1]) if stream else (400, response.text)
    assert (response.status_code, json.loads(last)["error"]["code"]) == (status, "upstream_refused")
    unknown = http.post("/v1/nothing", json={})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_the_gateway_is_not_worked_for(http: httpx.Client, reasoner: Upstream, stream: bool) -> None:
    gone = reasoner.gone
    asked = len(reasoner.bodies)
    reasoner.held = {asked: threading.Event()}
    body = raw(CHAT | {"stream": stream}, "/v1/chat/completions", f"Authorization: Bearer {KEY}")
    with socket.create_connection(("127.0.0.1", http.base_url.port or 0)) as connection:
        connection.sendall(body)
        until(lambda: len(reasoner.bodies) == asked + 1)
    until(lambda: reasoner.gone == gone + 1)


def test_who_leaves_in_the_middle_of_a_stream_is_not_worked_for(http: httpx.Client, reasoner: Upstream) -> None:
    gone = reasoner.gone
    before = len(reasoner.bodies)
    with streamed(http, reasoner, threading.Event()):
        until(lambda: len(reasoner.bodies) == before + 2)
    until(lambda: reasoner.gone == gone + 1)


def test_a_replica_that_dies_over_a_stream_ends_it_with_an_error(http: httpx.Client, reasoner: Upstream) -> None:
    named = {HEADER: question_hash("the one that dies over a stream")}
    victim = replica(http, "anything", **named)
    with streamed(http, reasoner, threading.Event(), **named) as events:
        os.kill(int(victim.partition("-")[2]), signal.SIGKILL)
        (last,) = events
    assert json.loads(last)["error"]["code"] == "model_unavailable"


def test_data_is_made_on_the_same_cluster(http: httpx.Client, tmp_path: Path) -> None:
    """`--ray` goes to the cluster that RAY_ADDRESS names, beside replicas that go on answering."""
    there = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    samples, selected, annotated = (tmp_path / f"{name}.jsonl" for name in ("samples", "selected", "annotated"))

    def stage(*arguments: str) -> None:
        command = [sys.executable, "-m", "training", *arguments]
        with subprocess.Popen(command, cwd=ROOT, env=there) as running:
            while running.poll() is None:
                assert replica(http, QUESTIONS[0])
                time.sleep(0.5)
        assert running.returncode == 0

    stage("sample", "--preset=mini", "--limit=2", "--k=8", f"--output={samples}", "--ray=1")
    assert len(samples.read_text("utf-8").splitlines()) == 2
    stage("select", str(samples), "--preset=mini", "--m=1", "--n=1", f"--output={selected}")
    solutions = len(selected.read_text("utf-8").splitlines())
    assert solutions > 0
    stage("annotate", str(selected), "--preset=mini", "--early-stop=0.95", f"--output={annotated}", "--ray=1")
    kept = [annotated, annotated.with_suffix(".unresolved.jsonl")]
    assert sum(len(file.read_text("utf-8").splitlines()) for file in kept if file.exists()) == solutions


def test_a_request_whose_replica_dies_is_asked_of_another(http: httpx.Client) -> None:
    named = {HEADER: question_hash("the one that dies")}
    victim = replica(http, "anything", **named)
    running = Background(lambda: http.post("/score_steps", json=ask(SLOW), headers=named))
    time.sleep(SECONDS / 2)  # its replica works on it
    assert running.running
    os.kill(int(victim.partition("-")[2]), signal.SIGKILL)
    response = running.result()
    assert response.status_code == 200
    assert response.json()["model"] != victim


def test_a_request_whose_replica_hangs_is_asked_of_another(http: httpx.Client) -> None:
    named = {HEADER: question_hash("the one that hangs")}
    victim = replica(http, "anything", **named)
    process = int(victim.partition("-")[2])
    os.kill(process, signal.SIGSTOP)
    response = http.post("/score_steps", json=ask("a"), headers=named)
    assert response.status_code == 200
    assert response.json()["model"] != victim
    # the other one may have been asked at once, half a minute before Ray ends this one
    until(lambda: not Path(f"/proc/{process}").exists(), 90)


def test_a_replica_that_dies_loses_no_request(http: httpx.Client) -> None:
    seen: list[str] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            seen.extend(replica(http, question) for question in QUESTIONS[:10])

    callers = [threading.Thread(target=work) for _ in range(2)]
    for caller in callers:
        caller.start()
    until(lambda: len(set(seen)) == 2)
    victim = seen[-1]
    os.kill(int(victim.partition("-")[2]), signal.SIGKILL)
    before = len(seen)
    until(lambda: len(seen) > before + 40)
    stop.set()
    for caller in callers:
        caller.join()
    assert victim not in seen[-10:]  # and every one of them was answered with 200


def test_a_new_model_takes_over_without_a_failed_request(http: httpx.Client, settings: ScaleSettings) -> None:
    seen: list[str] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            seen.extend(replica(http, question) for question in QUESTIONS[:10])
            time.sleep(0.1)  # the new replicas need the cores too

    caller = threading.Thread(target=work)
    caller.start()
    deploy(settings, Placed("new"))
    before = len(seen)
    until(lambda: len(seen) > before + 20)
    stop.set()
    caller.join()
    versions = [name.partition("-")[0] for name in seen]
    assert set(versions) == {"old", "new"}
    assert set(versions[-10:]) == {"new"}


def test_one_more_server_moves_no_more_than_its_share() -> None:
    keys = [question_hash(str(number)) for number in range(4000)]
    four, five = ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]
    before, after = ({key: ranked(key, servers)[0] for key in keys} for servers in (four, five))
    moved = [key for key in keys if before[key] != after[key]]
    assert all(after[key] == "e" for key in moved)
    assert 0.18 < len(moved) / len(keys) < 0.22
    assert all(800 < sum(choice == server for choice in before.values()) < 1200 for server in four)
    for key in keys[:100]:
        assert ranked(key, five)[1:] == ranked(key, [server for server in five if server != after[key]])


async def _ranks(key: str, *running: int | None) -> list[str]:
    """The router's order of replicas r0, r1 … with these numbers of running requests; None: unknown to it."""
    replicas: Any = [
        SimpleNamespace(replica_id=SimpleNamespace(unique_id=f"r{number}")) for number in range(len(running))
    ]
    router: Any = SimpleNamespace(
        replica_queue_len_cache=SimpleNamespace(get=lambda replica_id: running[int(replica_id.unique_id[1:])])
    )
    pending: Any = SimpleNamespace(args=[key])
    ranks = await QuestionRouter.choose_replicas(router, replicas, pending)
    assert all(len(rank) == 1 for rank in ranks)
    return [rank[0].replica_id.unique_id for rank in ranks]


def test_the_router_ranks_all_replicas_by_the_question() -> None:
    order = ranked("k", ["r0", "r1", "r2"])
    assert asyncio.run(_ranks("k", 0, 0, 0)) == asyncio.run(_ranks("k", None, None, None)) == order
    assert asyncio.run(_ranks("k")) == []
    first = [9 if name == order[0] else 0 for name in ("r0", "r1", "r2")]
    assert asyncio.run(_ranks("k", *first)) == [order[1], order[2], order[0]]


@pytest.mark.parametrize(
    ("running", "order"),
    [
        ((0, 0, 0), "abc"),
        ((3, 0, 0), "abc"),
        ((4, 0, 0), "bca"),  # as many as `FEW`, and more than its share
        ((4, 4, 1), "abc"),  # 1.4 times the mean of 10 among three is more
        ((6, 5, 0), "bca"),
        ((7, 7, 0), "cab"),
        ((14, 10, 6), "abc"),
        ((15, 10, 5), "bca"),  # 1.4 times the mean of 31
    ],
)
def test_a_server_with_more_than_its_share_is_ranked_last(running: tuple[int, ...], order: str) -> None:
    assert bounded("abc", dict(zip("abc", running, strict=True))) == list(order)


@pytest.mark.parametrize(
    ("waiting", "current", "expected"),
    [(0, 1, 1), (0, 4, 3), (100, 1, 1), (101, 1, 2), (950, 2, 10), (250, 10, 9)],
)
def test_replicas_follow_the_tokens_that_wait(waiting: int, current: int, expected: int) -> None:
    assert wanted(waiting, 100, current) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replicas=2", "--max-replicas=1"], "--max-replicas is 1, less than --replicas, 2"),
        (["--replicas=0"], "replicas"),
        (["--admin-key=k"], "--admin-key has no use here"),
        (["--api-keys-file=/nowhere"], "/nowhere"),
    ],
)
def test_settings_that_cannot_be_used_end_with_status_2(options: list[str], message: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "server.scale", *options], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_ray_leaves_out_no_line_of_the_log() -> None:
    # it reads this as it is imported, so nothing may import it before
    code = """
from server.scale.__main__ import main
assert main() == 2
from ray._private import ray_constants
assert not ray_constants.RAY_DEDUP_LOGS
"""
    command = [sys.executable, "-c", code, "--api-keys-file=/nowhere"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    subprocess.run(command, cwd=ROOT, env=alone, check=True)


def test_a_signal_ends_it_also_while_it_deploys() -> None:
    command = [sys.executable, "-m", "server.scale", "--port=0", "--replica-cpus=0.5"]
    alone = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(command, cwd=ROOT, env=alone, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "Started a local Ray instance" in line:
                time.sleep(0.3)  # it connects to what it started
                process.send_signal(signal.SIGTERM)
                break
        process.stderr.read()
        assert process.wait(60) == 0, seen
    assert "Started" in seen[-1]
