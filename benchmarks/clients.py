"""Clients of an HTTP server on this machine, each with a persistent connection."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

Request = tuple[str, bytes] | tuple[str, bytes, dict[str, str]]
"""Path, JSON body, and optional extra headers."""


def request(path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
    """A request for `call`."""
    return path, json.dumps(body).encode()


Note = Callable[[int, bytes], None]
"""Called with the number of a request and its answer."""


def call(
    url: str,
    requests: Sequence[Request],
    clients: int,
    note: Note = lambda number, answer: None,
    accepted: Container[int] = (200,),
) -> list[float]:
    """Sends the requests from `clients` threads, each of which sends the next request when its last is answered;
    returns the seconds of each request, in order of completion.

    Raises `RuntimeError` if one is not answered with an accepted status.
    """
    waiting = iter(enumerate(requests))
    taken: list[float] = []
    failures: list[str] = []
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
        while True:
            with lock:
                number, pending = next(waiting, (0, None))
            if pending is None or failures:
                return connection.close()
            start = time.perf_counter()
            path, body, *more = pending
            headers = {"Content-Type": "application/json"} | (more[0] if more else {})
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            taken.append(time.perf_counter() - start)
            if response.status not in accepted:
                failures.append(f"{response.status}: {answer[:200]!r}")
            else:
                note(number, answer)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures or len(taken) < len(requests):
        raise RuntimeError(f"{len(taken)} of {len(requests)} requests were answered; {failures[:1]}")
    return taken
