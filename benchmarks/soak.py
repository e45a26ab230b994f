"""Half an hour of mixed requests: the server's memory and open files at the end, against those after a warm-up."""

import random
import socket
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks import fuzz, hostile, queries, servers
from benchmarks.timing import Comparison

MINUTES, WARM_MINUTES, CLIENTS, SAMPLE_SECONDS = 30.0, 8.0, 6, 5.0


def run() -> list[Comparison]:
    """Runs the server with a small journal and a small prefix cache, so that both are full when measuring starts."""
    start, end = time.monotonic() + 60 * WARM_MINUTES, time.monotonic() + 60 * (WARM_MINUTES + MINUTES)
    memory: dict[bool, list[float]] = {False: [], True: []}
    files: dict[bool, list[int]] = {False: [], True: []}
    with TemporaryDirectory() as directory:
        options = ["--prefix-cache-gb=0.05", f"--journal={Path(directory, 'j')}", "--journal-mb=8"]
        with servers.unprm(*options) as (url, process):
            callers = [threading.Thread(target=_call, args=(url, seed, end)) for seed in range(CLIENTS)]
            for caller in callers:
                caller.start()
            server = psutil.Process(process.pid)
            while time.monotonic() < end:
                time.sleep(SAMPLE_SECONDS)
                first = time.monotonic() < start + 60 * MINUTES / 10
                if time.monotonic() > start and (first or time.monotonic() > end - 60 * MINUTES / 10):
                    memory[first].append(server.memory_info().rss)
                    files[first].append(server.num_fds() - len(server.net_connections()))
            for caller in callers:
                caller.join()
    what = f"a soak of {MINUTES:g} minutes"
    return [
        Comparison(f"memory in the last tenth of {what}", statistics.median(memory[False]), "in the first tenth",
                   statistics.median(memory[True]), len(memory[True]), "B"),
        Comparison(f"open files other than connections, last tenth of {what}", statistics.median(files[False]),
                   "in the first tenth", statistics.median(files[True]), len(files[True]), "files"),
    ]  # fmt: skip


def _call(url: str, seed: int, end: float) -> None:
    """A client that sends random requests one after the other until `end`, a time of the monotonic clock."""
    rng = random.Random(seed)
    place = urlsplit(url)
    with httpx.Client(base_url=url, timeout=120.0) as http:
        while time.monotonic() < end:
            kind = rng.random()
            if kind < 0.1:
                fuzz.send((place.hostname or "", place.port or 0), *rng.choice(fuzz.FUZZERS)(rng))
            elif kind < 0.15:
                with socket.create_connection((place.hostname, place.port)) as connection:  # disconnects midway
                    path, body = _request(rng)
                    connection.sendall(
                        f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:99]
                    )
            elif kind < 0.2:
                http.get(rng.choice(["/healthz", "/readyz", "/model", "/metrics", "/openapi.json", "/nothing"]))
            else:
                path, body = _request(rng)
                http.post(path, content=body, headers={"Content-Type": "application/json"}).raise_for_status()


def _request(rng: random.Random) -> tuple[str, bytes]:
    kind = rng.random()
    if kind < 0.03:
        return hostile.attack(rng, rng.randrange(10**6))
    (query,) = queries.zipf(rng, 1, rng.randint(1, 8))
    return queries.score_steps(query) if kind < 0.4 else hostile.vote(rng, *query)
