"""Ten times more requests than the server can answer, for a minute: the rate answered in time, against its capacity,
and how fast the rest is refused."""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

import psutil

from benchmarks import clients, models, queries, servers
from benchmarks.timing import Comparison, timed
from unprm import mini

LARGER = "0.1 billion parameters"
SECONDS, FACTOR, DEADLINE, SENDERS, CLOSED, CANDIDATES = 60, 10, 20.0, 96, 4, 16
QUEUE = 32_768
"""Limit of queued tokens: the half that one address may have is a few seconds of work, so that accepted requests are
answered within the deadline."""
REFUSED_WITHIN = 0.02
IDLE = 4.0
"""Idle seconds after which a sender reconnects, shortly before the server would close the connection."""


def run() -> list[Comparison]:
    """Requests of 16 new candidates, to a model that takes hardly longer than HTTP itself, and to a larger one."""
    with tempfile.TemporaryDirectory() as directory:
        larger = models.write(Path(directory))
        return _overload(mini.NAME, mini.NAME, 160) + _overload(LARGER, str(larger), 48)


def _overload(name: str, model: str, closed: int) -> list[Comparison]:
    requests = map(queries.score_steps, queries.endless_zipf(random.Random(0), CANDIDATES))
    options = [f"--max-queued-tokens={QUEUE}", f"--max-request-seconds={DEADLINE}", "--prefix-cache-gb=0.1"]
    with servers.unprm(*options, model=model) as (url, process):
        clients.call(url, list(islice(requests, closed // 4)), CLOSED)
        capacity = closed / timed(clients.call, url, list(islice(requests, closed)), CLOSED)
        memory = psutil.Process(process.pid).memory_info
        before = memory().rss
        rate = FACTOR * capacity
        replies, end = _offer(url, list(islice(requests, int(rate * SECONDS))), rate)
        after = memory().rss
    if odd := {reply.status for reply in replies} - {200, 429}:
        raise RuntimeError(f"answers with status {sorted(odd)}")
    good = sum(reply.status == 200 and reply.seconds <= DEADLINE and reply.received < end for reply in replies)
    offered = len(replies) / SECONDS
    what = f"{name}, {offered:.0f} requests a second for {SECONDS} s"
    return [
        Comparison(f"{what}: answered in time", good / SECONDS, "capacity", capacity, 1, "/s", allowed=1.0),
        Comparison(f"{what}: p99 of the answers", _p99(replies, 200), "the deadline", DEADLINE),
        Comparison(f"{what}: p99 of the refusals", _p99(replies, 429), "20 ms", REFUSED_WITHIN),
        Comparison(f"{what}: memory afterwards", after, "before", before, unit="B"),
    ]


def _p99(replies: Sequence[clients.Reply], status: int) -> float:
    taken = [reply.seconds for reply in replies if reply.status == status]
    return statistics.quantiles(taken, n=100)[98]


def _offer(url: str, requests: Sequence[clients.Request], rate: float) -> tuple[list[clients.Reply], float]:
    """Sends at this rate for `SECONDS`, regardless of the responses; a sender that is late sends at once. Returns the
    answers, and the end of the test."""
    start = time.perf_counter()
    end = start + SECONDS

    def send(sender: int) -> list[clients.Reply]:
        replies: list[clients.Reply] = []
        with closing(clients.connect(url)) as connection:
            for number in range(sender, len(requests), SENDERS):
                time.sleep(max(0.0, start + number / rate - time.perf_counter()))
                now = time.perf_counter()
                if now > end:
                    break
                if now > (replies[-1].received if replies else start) + IDLE:
                    connection.close()
                replies.append(clients.send(connection, requests[number]))
        return replies

    with ThreadPoolExecutor(SENDERS) as pool:
        return list(chain.from_iterable(pool.map(send, range(SENDERS)))), end
