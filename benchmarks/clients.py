"""Clients of an HTTP server on this machine, each with a persistent connection."""

import json
import threading
import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Request = tuple[str, bytes] | tuple[str, bytes, dict[str, str]]
"""Path, JSON body, and optional extra headers."""


class Reply(NamedTuple):
    """A server's answer. `sent`, `received`: seconds of `time.perf_counter`."""

    status: int
    body: bytes
    sent: float
    received: float

    @property
    def seconds(self) -> float:
        """From the request to the whole answer."""
        return self.received - self.sent

    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


def request(path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
    """A request for `call`."""
    return path, json.dumps(body).encode()


def call(url: str, requests: Sequence[Request], clients: int, accepted: Container[int] = (200,)) -> list[Reply]:
    """Sends the requests from `clients` threads, each of which sends the next request when its last is answered;
    returns the answers in the order of the requests.

    Raises `RuntimeError` if one is not answered with an accepted status.
    """
    thread = threading.local()

    def answered(request: Request) -> Reply:
        reply = send(thread.connection, request)
        if reply.status not in accepted:
            raise RuntimeError(f"{reply.status}: {reply.body[:200]!r}")
        return reply

    with ExitStack() as connections:

        def begin() -> None:
            thread.connection = connections.enter_context(closing(connect(url)))

        with ThreadPoolExecutor(clients, initializer=begin) as pool:
            return list(pool.map(answered, requests))


def connect(url: str) -> HTTPConnection:
    """A connection for `send`."""
    return HTTPConnection(urlsplit(url).netloc, timeout=600)


def send(connection: HTTPConnection, request: Request) -> Reply:
    """Sends a request and waits for the answer."""
    path, body, *more = request
    sent = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"} | (more[0] if more else {}))
    response = connection.getresponse()
    answer = response.read()
    return Reply(response.status, answer, sent, time.perf_counter())
