"""nginx in front of two servers: the same question goes to the same one, and to the other once that is gone."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks import servers
from server.settings import Settings
from tests.server.harness import Running, ask, serving, until
from unprm.affinity import HEADER, question_hash
from unprm.engines.fake import FakeEngine

QUESTIONS = [f"How many are {number}?" for number in range(40)]

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)")


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[tuple[httpx.Client, list[Running]]]:
    """A client of nginx, and the servers behind it."""
    with (
        serving(FakeEngine(name="one")) as one,
        serving(FakeEngine(name="two")) as two,
        servers.nginx(tmp_path, one.url, two.url) as url,
        httpx.Client(base_url=url, timeout=30) as http,
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
    until(lambda: not any(own.is_serving() for own in one.server.servers))
    assert {_server(http, question) for question in QUESTIONS} == {"two"}
    assert [own for own in first.values() if own == "two"]
