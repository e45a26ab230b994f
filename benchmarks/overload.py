"""Ten times more requests than the server can answer, for a minute: the rate answered in time, against its capacity,
and how fast the rest is refused."""

import http.client
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import clients, mixed, models, servers
from benchmarks.timing import Comparison, timed
from unprm import mini

LARGER = "0.1 billion parameters"
SECONDS, FACTOR, DEADLINE, SENDERS, CLOSED, CANDIDATES = 60, 10, 20.0, 96, 4, 16
QUEUE = 16_384
"""Limit of queued tokens: a few seconds of work, so that accepted requests are answered within the deadline."""
REFUSED_WITHIN = 0.02
IDLE = 4.0
"""Idle seconds after which a sender reconnects, shortly before the server would close the connection."""


@dataclass
class _Seen:
    """Responses that senders got. `taken`: seconds by status; `good`: number of 200s within `DEADLINE`, before the end
    of the test."""

    taken: dict[int, list[float]] = field(default_factory=dict)
    good: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, status: int, seconds: float, offered: bool) -> None:
        with self.lock:
            self.taken.setdefault(status, []).append(seconds)
            self.good += status == 200 and seconds <= DEADLINE and offered

    def p99(self, status: int) -> float:
        return statistics.quantiles(self.taken[status], n=100)[98]


def run() -> list[Comparison]:
    """Requests of 16 new candidates, to a model that takes hardly longer than HTTP itself, and to a larger one."""
    with tempfile.TemporaryDirectory() as directory:
        larger = models.write(Path(directory))
        return _overload(mini.NAME, mini.NAME, 160) + _overload(LARGER, str(larger), 48)


def _overload(name: str, model: str, closed: int) -> list[Comparison]:
    requests = map(mixed.ours, mixed.endless(random.Random(0), CANDIDATES))
    options = [f"--max-queued-tokens={QUEUE}", f"--max-request-seconds={DEADLINE}", "--prefix-cache-gb=0.1"]
    with servers.unprm_process(f"--model={model}", "--device=cpu", *options) as (url, process):
        clients.call(url, list(islice(requests, closed // 4)), CLOSED)
        capacity = closed / timed(clients.call, url, list(islice(requests, closed)), CLOSED)
        before = resident(process.pid)
        rate = FACTOR * capacity
        seen = _offer(url, list(islice(requests, int(rate * SECONDS))), rate)
        after = resident(process.pid)
    odd = set(seen.taken) - {200, 429}
    if odd:
        raise RuntimeError(f"answers with status {sorted(odd)}")
    offered = sum(map(len, seen.taken.values())) / SECONDS
    what = f"{name}, {offered:.0f} requests a second for {SECONDS} s"
    return [
        Comparison(f"{what}: answered in time", seen.good / SECONDS, "capacity", capacity, 1, "/s", allowed=1.0),
        Comparison(f"{what}: p99 of the answers", seen.p99(200), "the deadline", DEADLINE, 1),
        Comparison(f"{what}: p99 of the refusals", seen.p99(429), "20 ms", REFUSED_WITHIN, 1),
        Comparison(f"{what}: memory afterwards", after, "before", before, 1, "B"),
    ]


def _offer(url: str, requests: Sequence[clients.Request], rate: float) -> _Seen:
    """Sends at this rate regardless of the responses; a sender that is late sends at once."""
    seen, start = _Seen(), time.perf_counter()

    def send(sender: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        last = start
        for number in range(sender, len(requests), SENDERS):
            time.sleep(max(0.0, start + number / rate - time.perf_counter()))
            sent = time.perf_counter()
            if sent > start + SECONDS:
                break
            if sent > last + IDLE:
                connection.close()
            path, body, *_ = requests[number]
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            last = time.perf_counter()
            seen.add(response.status, last - sent, last < start + SECONDS)
        connection.close()

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def resident(pid: int) -> float:
    """Resident memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return 1024 * float(line.split()[1])
