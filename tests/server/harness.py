"""A real server for tests: uvicorn in a thread, on a free port."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvloop
from fastapi import FastAPI

from server.app import create_app
from server.models.model import EngineOrLoader, LoadModel
from server.service import Service
from server.serving import DrainingServer
from server.settings import Settings
from tests.fake_engine import FakeEngine, FakeFormat
from tests.support import PATIENCE, until
from unprm import mini
from unprm.types import Encoded, Engine

PROBLEM = "How many?"


@dataclass(frozen=True)
class Running:
    """A server that answers at `url`; `http` is a client of it."""

    url: str
    port: int
    http: httpx.Client
    server: DrainingServer
    app: FastAPI

    @property
    def service(self) -> Service:
        service: Service = self.app.state.service
        return service

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def connect(self, request: bytes) -> socket.socket:
        """A connection on which this was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall(request)
        return connection

    def metric(self, line: str) -> float:
        """A value in /metrics, by its name and labels: the sum of those that have these labels; 0 if there is none."""
        name, _, labels = line.rstrip("}").partition("{")
        rows = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return sum(float(value) for found, value in rows if _pairs(labels) <= _pairs(found))


def _pairs(labels: str) -> set[str]:
    return set(re.findall(r'\w+="[^"]*"', labels))


class _EagerLoop(uvloop.Loop):
    """Uvicorn looks ten times a second whether it is to end; here it looks two hundred times."""

    def call_later(self, delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_later(0.005 if delay == 0.1 else delay, *arguments, **options)


def _run(server: DrainingServer) -> None:
    with asyncio.Runner(loop_factory=_EagerLoop) as runner:
        runner.run(server.serve())


@contextmanager
def serving(
    models: EngineOrLoader | Mapping[str, EngineOrLoader] | None = None,
    open_model: LoadModel | None = None,
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> Iterator[Running]:
    """Serves models, by default a fake one, until the end of the block. `clock`: as in `create_app`."""
    settings = Settings(port=0, **{"drain_seconds": 5.0, **options})
    app = create_app(settings, FakeEngine() if models is None else models, open_model, clock=clock)
    server = DrainingServer(app, settings)
    thread = threading.Thread(target=_run, args=[server])
    thread.start()
    try:
        until(lambda: server.started and bool(server.servers))
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            yield Running(url, port, client, server, app)
    finally:
        server.should_exit = True
        thread.join()


class Background:
    """A call in a thread of its own; `result` waits for it."""

    def __init__(self, call: Callable[[], httpx.Response]) -> None:
        self._answer: list[httpx.Response] = []
        self._thread = threading.Thread(target=lambda: self._answer.append(call()))
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> httpx.Response:
        self._thread.join(PATIENCE)
        return self._answer[0]


def ask(*solutions: Any, **more: Any) -> dict[str, Any]:
    """The body of a request about the one problem."""
    return {"problem": PROBLEM, "solutions": list(solutions), **more}


def raw(body: Any, path: str = "/score_steps", *more: str, length: int | None = None) -> bytes:
    """A request as it goes over the wire; `length` is what it declares, if not the body's."""
    content = b"" if body is None else json.dumps(body).encode()
    declared = len(content) if length is None else length
    lines = ["Host: x", "Content-Type: application/json", f"Content-Length: {declared}", *more]
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + content


def boxed(answer: object, *steps: str) -> list[str]:
    """A solution with this answer."""
    return [*steps, f"The answer is \\boxed{{{answer}}}."]


def read(*steps: str) -> Encoded:
    """What the fake engine reads of the one problem and these steps."""
    return FakeFormat().encode(PROBLEM, steps)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def embedded() -> Engine:
    """What `python -m server` serves without options."""
    from unprm.models.load import load_engine

    return load_engine(mini.NAME, device="cpu", dtype="float32", prefix_cache_gb=1.0)
