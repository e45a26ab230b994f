"""nginx in front of two servers: the same question goes to the same one, and to the other once that is gone."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.harness import Running, ask, serving, until
from unprm.affinity import HEADER, question_hash
from unprm.engines.fake import FakeEngine

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
CONFIGURATION = Path(__file__).parents[2] / "docker" / "nginx" / "unprm.conf"
QUESTIONS = [f"How many are {number}?" for number in range(40)]

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)")


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[tuple[httpx.Client, list[Running]]]:
    """A client of nginx, and the servers behind it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(FakeEngine(name="one")) as one, serving(FakeEngine(name="two")) as two:
        told = CONFIGURATION.read_text("utf-8")
        for written, real in ((8000, port), (8001, one.port), (8002, two.port)):
            told = told.replace(str(written), str(real))
        (tmp_path / "unprm.conf").write_text(told)
        whole = f"""
            daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; worker_processes 1;
            events {{}}
            http {{
                access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;
                fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
                include {tmp_path}/unprm.conf;
            }}"""
        (tmp_path / "nginx.conf").write_text(whole)
        with subprocess.Popen([NGINX, "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]) as nginx:
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                    until(lambda: _ready(http, nginx))
                    yield http, [one, two]
            finally:
                nginx.terminate()


def _ready(http: httpx.Client, nginx: "subprocess.Popen[bytes]") -> bool:
    assert nginx.poll() is None
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


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
    until(lambda: not any(own.is_serving() for own in one.server.servers))
    assert {_server(http, question) for question in QUESTIONS} == {"two"}
    assert [own for own in first.values() if own == "two"]
