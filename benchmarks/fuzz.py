"""Malformed requests: each must get an answer other than a 5xx, and the server's memory must not keep growing."""

import json
import random
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import psutil
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from benchmarks import servers
from benchmarks.timing import Comparison
from server.http.work import TIMEOUT_HEADER

MUTATED, GENERATED, SENDERS, PATIENCE = 8_500, 1_500, 8, 30.0
HUNG_UP = 0.5
"""Seconds after which the sender of an incomplete request disconnects."""
PATHS = ("/score_steps", "/vote/majority", "/vote/wrf", "/vote/compare", "/preview")
STRANGE: list[Any] = [None, True, -1, 1e308, 2**70, "", " ", "\x00", "\u2028", "\\frac{", "ş", [], {}, [[]], "9" * 2000]
Address = tuple[str, int]


def run() -> list[Comparison]:
    """Sends the embedded model's server, twice, 8,500 mutated requests over sockets and 1,500 that schemathesis
    generates from the OpenAPI document."""
    rng = random.Random(0)
    with servers.unprm("--prefix-cache-gb=0.05") as (url, process):
        place = urlsplit(url)
        address = place.hostname or "", place.port or 0
        first = _mutated(rng, address, MUTATED) + _generated(url)
        memory = psutil.Process(process.pid).memory_info
        before = memory().rss
        seen = _mutated(rng, address, MUTATED) + _generated(url)
        after = memory().rss
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
    seen += first
    statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(seen.items()))
    what = f"memory after {seen.total():,} fuzzed requests ({statuses})"
    return [Comparison(what, after, "after half of them", before, unit="B")]


def _checked(seen: Counter[str]) -> Counter[str]:
    if wrong := {status: count for status, count in seen.items() if status.startswith("5")}:
        raise RuntimeError(f"answers that there should not be: {wrong}")
    return seen


def _mutated(rng: random.Random, address: Address, count: int) -> Counter[str]:
    made = [rng.choice(FUZZERS)(rng) for _ in range(count)]
    with ThreadPoolExecutor(SENDERS) as pool:
        return _checked(Counter(pool.map(lambda request: send(address, *request), made)))


def _generated(url: str) -> Counter[str]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [schema[path]["POST"] for path in PATHS]
    seen: Counter[str] = Counter()
    for operation in operations:
        for mode in GenerationMode:
            _ask(operation, mode, seen, GENERATED // len(operations) // 2)
    return _checked(seen)


def _ask(operation: Any, mode: GenerationMode, seen: Counter[str], count: int) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        (case.headers or {}).pop(TIMEOUT_HEADER, None)  # a timeout of 0 s gets a 504
        seen[str(case.call(timeout=PATIENCE).status_code)] += 1

    ask()


def send(address: Address, request: bytes, whole: bool) -> str:
    """Sends a request and returns the status; `closed` if the server closed the connection as it was not valid HTTP,
    `left` if an incomplete request got no answer. Raises `TimeoutError` if a whole request gets none."""
    with socket.create_connection(address, PATIENCE if whole else HUNG_UP) as connection:
        try:
            connection.sendall(request)
            first = connection.recv(64)
            while connection.recv(65_536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            return "closed"
        except TimeoutError:
            if whole:
                raise
            return "left"
    return first[9:12].decode("ascii", "replace") if first.startswith(b"HTTP/1.1 ") else "closed"


def _valid(rng: random.Random) -> tuple[str, dict[str, Any]]:
    path = rng.choice(PATHS)
    steps = [f"Step {k}: {k} + 1 = {k + 1}." for k in range(rng.randint(1, 3))]
    if path == "/preview":
        return path, {"problem": "1 + 1?", "solution": steps}
    scored = {"steps": steps, "answer": "2", "step_scores": [0.5] * len(steps)}
    return path, {"problem": "1 + 1?", "solutions": [scored, " ".join(steps), steps]}


def _raw(path: str, body: bytes, length: int | None = None) -> bytes:
    declared = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {declared}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def _other_values(rng: random.Random) -> tuple[bytes, bool]:
    """Valid JSON with an unexpected value in one place; and True: the request is whole."""
    path, body = _valid(rng)
    value: Any = body
    while value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if rng.random() < 0.5 or not isinstance(value[key], (dict, list)):
            value[key] = rng.choice(STRANGE)
            break
        value = value[key]
    return _raw(path, json.dumps(body).encode()), True


def _other_bytes(rng: random.Random) -> tuple[bytes, bool]:
    """JSON with bytes changed, removed or inserted; and True: the request is whole."""
    path, body = _valid(rng)
    return _raw(path, _changed(rng, json.dumps(body).encode())), True


def _other_http(rng: random.Random) -> tuple[bytes, bool]:
    """A request with bytes changed anywhere, or with a wrong Content-Length; and False: it may be incomplete."""
    path, body = _valid(rng)
    content = json.dumps(body).encode()
    if rng.random() < 0.3:
        return _raw(path, content, rng.choice([0, 1, len(content) - 1, len(content) + 1, 2**40])), False
    return _changed(rng, _raw(path, content)), False


def _changed(rng: random.Random, content: bytes) -> bytes:
    sent = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        place, width = rng.randrange(len(sent) + 1), rng.choice([0, 1, 1, 1, 20])
        sent[place : place + width] = rng.randbytes(rng.choice([0, 1, 1, 1, 20]))
    return bytes(sent)


FUZZERS: list[Callable[[random.Random], tuple[bytes, bool]]] = [_other_values, _other_bytes, _other_http]
