"""Clients of an HTTP server on this machine, each with a persistent connection."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

Request = tuple[str, bytes]
"""Path and JSON body."""


def call(url: str, requests: Sequence[Request], clients: int) -> list[float]:
    """Sends the requests from `clients` threads, each of which sends the next request when its last is answered;
    returns for each request the seconds until the whole answer was there.

    Raises `RuntimeError` if one is not answered with 200.
    """
    thread = threading.local()
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("UNPRM_CLIENT_KEY"):
        headers["Authorization"] = f"Bearer {key}"

    def answered(request: Request) -> float:
        path, body = request
        sent = time.perf_counter()
        thread.connection.request("POST", path, body, headers)
        response = thread.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer[:200]!r}")
        return time.perf_counter() - sent

    with ExitStack() as connections:

        def begin() -> None:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=600)
            thread.connection = connections.enter_context(closing(connection))

        with ThreadPoolExecutor(clients, initializer=begin) as pool:
            return list(pool.map(answered, requests))
