"""Replicas on a local Ray cluster: the answers of a server; a replica that dies is replaced, and a new model takes over
without a failed request."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.scale.settings import RAY, ScaleSettings
from tests.fake_engine import FakeEngine
from tests.fakes import Upstream, upstream
from tests.server.collector import Collector, collector
from tests.server.harness import ask, bearer, boxed, raw, serving
from tests.support import ROOT, free_port, until

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from server.scale.deploy import deploy  # noqa: E402

KEY = "CANARY-first"
QUESTIONS = [f"How many are {number}?" for number in range(20)]


class Placed(FakeEngine):
    """An engine that names its version and its process."""

    def __init__(self, version: str) -> None:
        super().__init__(delay=0.01, name=f"{version}-{os.getpid()}")
        self.version = version

    def __reduce__(self) -> Any:
        return Placed, (self.version,)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the caller's key."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"tests {KEY}\n")
    return file


@pytest.fixture(scope="module")
def reasoner() -> Iterator[Upstream]:
    """The upstream that the gateway samples from."""
    with upstream("It is \\boxed{7}.", "It is \\boxed{8}.") as running:
        yield running


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def settings(keys: Path, reasoner: Upstream, traces: Collector) -> ScaleSettings:
    return ScaleSettings(
        port=free_port(),
        replicas=2,
        replica_cpus=0.5,
        max_body_bytes=10_000,
        api_keys_file=keys,
        upstream_url=reasoner.url,
        otlp_endpoint=traces.url,
    )


@pytest.fixture(scope="module")
def http(settings: ScaleSettings) -> Iterator[httpx.Client]:
    """A client of two replicas."""
    os.environ |= RAY
    variables = {"PYTHONPATH": str(ROOT), "OTEL_BSP_SCHEDULE_DELAY": "100"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    deploy(settings, Placed("old"))
    with httpx.Client(base_url=f"http://127.0.0.1:{settings.port}", timeout=60, headers=bearer(KEY)) as client:
        yield client
    ray.serve.shutdown()
    ray.shutdown()


def replica(http: httpx.Client, question: str, **headers: str) -> str:
    """The replica that answers."""
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
                usage = answer.get("usage", {})
                for name in [name for name in usage if name.endswith("_ms")]:
                    del usage[name]
            assert actual == expected
    assert http.get("/readyz").json() == {"status": "ok"}


def test_a_replica_is_traced(http: httpx.Client, traces: Collector) -> None:
    caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    replica(http, QUESTIONS[0], traceparent=caller)

    def came() -> bool:
        return any(each.parent_span_id.hex() in caller and each.name == "POST /vote/prm" for each in traces.spans)

    until(came)


def test_ray_logs_nothing_of_what_a_caller_wrote(http: httpx.Client) -> None:
    response = http.post("/CANARY-path?a=CANARY-query", json=ask("CANARY-text"), headers={"X-Request-ID": "CANARY-id"})
    assert response.status_code == 404
    assert replica(http, "CANARY-question", **{"X-Request-ID": "CANARY-id"})
    logs = Path("/tmp/ray", ray.get_runtime_context().get_session_name(), "logs", "serve")
    files = [file for file in logs.rglob("*") if file.is_file()]
    assert any("proxy" in file.name for file in files)
    assert [file for file in files if b"CANARY" in file.read_bytes()] == []


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
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
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
def test_who_leaves_the_gateway_is_not_worked_for(http: httpx.Client, reasoner: Upstream, stream: bool) -> None:
    gone = reasoner.gone
    asked = len(reasoner.bodies)
    reasoner.held = {asked: threading.Event()}
    body = raw(CHAT | {"stream": stream}, "/v1/chat/completions", f"Authorization: Bearer {KEY}")
    with socket.create_connection(("127.0.0.1", http.base_url.port or 0)) as connection:
        connection.sendall(body)
        until(lambda: len(reasoner.bodies) == asked + 1)
    until(lambda: reasoner.gone == gone + 1)


def test_a_replica_that_dies_is_replaced(http: httpx.Client) -> None:
    names: set[str] = set()

    def both_answer() -> bool:
        response = http.post("/vote/prm", json=ask(boxed(1), boxed(2)))
        if response.status_code == 200:
            names.add(response.json()["model"])
        return len(names) == 2

    until(both_answer)
    victim = names.pop()
    os.kill(int(victim.partition("-")[2]), signal.SIGKILL)
    until(both_answer, 90)
    assert victim not in names


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
from server.scale.__main__ import app
from unprm.commands import run
try:
    run(app)
except SystemExit as ended:
    assert ended.code == 2
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
