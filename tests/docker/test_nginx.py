"""nginx in front of two servers: the same question goes to the same one, and to the other once that is gone."""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from benchmarks import servers
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, ask, serving
from tests.support import PATIENCE, ROOT, free_port, until
from unprm.affinity import HEADER, question_hash

QUESTIONS = [f"How many are {number}?" for number in range(40)]

SITE = ROOT / "docker" / "nginx" / "unprm.conf"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)")


@contextmanager
def _nginx(directory: Path, one: str, other: str) -> Iterator[str]:
    """Starts nginx, configured as in docker/nginx, in front of two servers; yields its address. It writes to
    `directory`."""
    port = free_port()
    site = SITE.read_text("utf-8").replace("listen 8000", f"listen 127.0.0.1:{port}")
    for written, url in (("127.0.0.1:8001", one), ("127.0.0.1:8002", other)):
        site = site.replace(written, url.removeprefix("http://"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {directory}/pid; events {{}}\nhttp {{ access_log off; {folders}\n{site} }}\n", "utf-8"
    )
    with servers.running([str(NGINX), "-c", str(configuration), "-e", "stderr"], port, "/readyz") as (url, _):
        yield url


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[tuple[httpx.Client, list[Running]]]:
    """A client of nginx, and the servers behind it."""
    with (
        serving(FakeEngine(name="one")) as one,
        serving(FakeEngine(name="two")) as two,
        _nginx(tmp_path, one.url, two.url) as url,
        httpx.Client(base_url=url, timeout=PATIENCE) as http,
    ):
        yield http, [one, two]


def _server(http: httpx.Client, question: str) -> str:
    body = ask("a", "b") | {"problem": question}
    response = http.post("/score_steps", json=body, headers={HEADER: question_hash(question)})
    assert response.status_code == 200, response.text
    return str(response.json()["model"])


def test_a_question_goes_to_the_same_server(balanced: tuple[httpx.Client, list[Running]]) -> None:
    http, _ = balanced
    first = {question: _server(http, question) for question in QUESTIONS}
    assert set(first.values()) == {"one", "two"}
    assert all(_server(http, question) == first[question] for question in QUESTIONS)


def test_a_server_that_goes_away_is_stood_in_for(balanced: tuple[httpx.Client, list[Running]]) -> None:
    http, (one, _) = balanced
    first = {question: _server(http, question) for question in QUESTIONS}
    answers: list[str] = []
    leaving = threading.Timer(0.1, lambda: setattr(one.server, "should_exit", True))
    leaving.start()
    while leaving.is_alive() or one.server.servers == [] or not answers:
        answers += [_server(http, question) for question in QUESTIONS]
    until(lambda: not any(listener.is_serving() for listener in one.server.servers))
    assert {_server(http, question) for question in QUESTIONS} == {"two"}
    assert [name for name in first.values() if name == "two"]


@contextmanager
def _backend(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server that answers by the handler; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as backend:
        thread = threading.Thread(target=backend.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{backend.server_port}"
        finally:
            backend.shutdown()
            thread.join()


class _Ready(BaseHTTPRequestHandler):
    """Is ready; GET requests are answered, and nothing is logged."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "attempts"),
    [
        ("/score_steps", 2),
        ("/vote", 2),
        ("/vote/wrf", 2),
        ("/vote/best_of_majority", 2),
        ("/vote/compare", 2),
        ("/preview", 2),
        ("/v1/chat/completions", 1),
        ("/admin/models", 1),
    ],
)
def test_only_what_changes_nothing_is_asked_for_twice(path: str, attempts: int, tmp_path: Path) -> None:
    seen: list[str] = []

    class Dying(_Ready):
        def do_POST(self) -> None:  # reads the request, and closes the connection without an answer
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.path)

    with _backend(Dying) as one, _backend(Dying) as two, _nginx(tmp_path, one, two) as url:
        assert httpx.post(url + path, json={}, timeout=PATIENCE).status_code == 502
    assert seen == [path] * attempts


def test_events_of_the_gateway_come_as_they_are_made(tmp_path: Path) -> None:
    received = threading.Event()

    class Streaming(_Ready):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            received.wait(PATIENCE)
            self.wfile.write(b"data: second\n\n")

    with (
        _backend(Streaming) as one,
        _nginx(tmp_path, one, one) as url,
        httpx.stream("POST", f"{url}/v1/chat/completions", json={}, timeout=PATIENCE / 2) as response,
    ):
        chunks = response.iter_bytes()
        try:
            assert next(chunks) == b"data: first\n\n"
        finally:
            received.set()
        assert b"".join(chunks) == b"data: second\n\n"


@pytest.mark.parametrize("path", ["/model", "/v1/models"])
def test_a_page_of_another_site_is_refused_behind_nginx_too(path: str, tmp_path: Path) -> None:
    with serving() as one, _nginx(tmp_path, one.url, one.url) as url:
        for name, status in (("evil.example", 403), ("localhost:8000", 200)):
            assert httpx.get(url + path, headers={"Host": name}, timeout=PATIENCE).status_code == status


def test_metrics_are_not_for_those_outside(tmp_path: Path) -> None:
    with serving() as one, _nginx(tmp_path, one.url, one.url) as url:
        assert httpx.get(f"{one.url}/metrics", timeout=PATIENCE).status_code == 200
        for path in ("/metrics", "/%6detrics", "//metrics", "/./metrics"):
            assert httpx.get(url + path, timeout=PATIENCE).status_code == 404


def test_nginx_waits_longer_than_the_server_takes() -> None:
    requests, answers_of_the_gateway = map(int, re.findall(r"proxy_read_timeout (\d+)s;", SITE.read_text("utf-8")))
    assert requests > Settings().max_request_seconds
    assert answers_of_the_gateway > Settings().gateway_seconds
